import ai.vespa.models.evaluation.Model;
import ai.vespa.models.evaluation.RankProfilesConfigImporter;
import ai.vespa.rankingexpression.importer.lightgbm.LightGBMImporter;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.yahoo.component.ComponentId;
import com.yahoo.component.provider.ComponentRegistry;
import com.yahoo.config.FileReference;
import com.yahoo.config.application.api.FileRegistry;
import com.yahoo.config.model.application.provider.FilesApplicationPackage;
import com.yahoo.config.model.deploy.DeployState;
import com.yahoo.data.access.simple.Value;
import com.yahoo.filedistribution.fileacquirer.FileAcquirer;
import com.yahoo.schema.derived.DerivedConfiguration;
import com.yahoo.schema.derived.SchemaInfo;
import com.yahoo.search.Query;
import com.yahoo.search.Result;
import com.yahoo.search.ranking.GlobalPhaseRanker;
import com.yahoo.search.ranking.RankProfilesEvaluator;
import com.yahoo.search.ranking.RankProfilesEvaluatorFactory;
import com.yahoo.search.result.FeatureData;
import com.yahoo.search.result.Hit;
import com.yahoo.tensor.Tensor;
import com.yahoo.vespa.config.search.RankProfilesConfig;
import com.yahoo.vespa.config.search.core.OnnxModelsConfig;
import com.yahoo.vespa.config.search.core.RankingConstantsConfig;
import com.yahoo.vespa.config.search.core.RankingExpressionsConfig;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Reads a request a line, as JSON, and answers each with a line: the scores that Vespa gives to documents. */
public class Evaluate {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Application> APPLICATIONS = new HashMap<>();

    /** Large expressions, which Vespa sends to its nodes as files. */
    static class Sent implements FileRegistry, FileAcquirer {
        final Path folder;
        final List<Entry> entries = new ArrayList<>();

        Sent() throws IOException {
            folder = Files.createTempDirectory("querywise-vespa");
            folder.toFile().deleteOnExit();
        }

        @Override
        public FileReference addBlob(String name, ByteBuffer content) {
            // Compressed on its way to a node; here as it is, so without the name's ending.
            var file = folder.resolve(entries.size() + "-" + name.replace('/', '-').replace(".lz4", "")).toFile();
            var bytes = new byte[content.remaining()];
            content.duplicate().get(bytes);
            try {
                Files.write(file.toPath(), bytes);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            file.deleteOnExit();
            var reference = new FileReference(file.getPath());
            entries.add(new Entry(name, reference));
            return reference;
        }

        @Override
        public FileReference addFile(String path) { return new FileReference(path); }

        @Override
        public FileReference addUri(String uri) { return new FileReference(uri); }

        @Override
        public List<Entry> export() { return entries; }

        @Override
        public File waitFor(FileReference reference, long time, TimeUnit unit) { return new File(reference.value()); }

        @Override
        public void shutdown() { }
    }

    /** An application package as Vespa derives it for its nodes. */
    static class Application {
        final RankProfilesConfig profiles;
        final RankingExpressionsConfig expressions;
        final Sent files = new Sent();
        final Map<String, Model> models;
        final String schema;

        Application(String folder) throws Exception {
            var given = FilesApplicationPackage.fromDir(new File(folder), Map.of());
            var state = new DeployState.Builder().applicationPackage(given).fileRegistry(files)
                    .modelImporters(List.of(new LightGBMImporter())).build();
            var parsed = state.getSchemas().get(0);
            schema = parsed.getName();
            var list = new DerivedConfiguration(state, parsed, SchemaInfo.IndexMode.INDEX).getRankProfileList();
            var all = new RankProfilesConfig.Builder();
            list.getRankProfilesConfig().forEach(all::rankprofile);
            profiles = all.build();
            var large = new RankingExpressionsConfig.Builder();
            list.getExpressionsConfig().forEach(large::expression);
            expressions = large.build();
            models = new RankProfilesConfigImporter(files, null).importFrom(profiles, constants(), expressions, onnx());
        }

        static RankingConstantsConfig constants() { return new RankingConstantsConfig.Builder().build(); }

        static OnnxModelsConfig onnx() { return new OnnxModelsConfig.Builder().build(); }

        String property(String profile, String name) {
            for (var each : profiles.rankprofile())
                if (each.name().equals(profile))
                    for (var property : each.fef().property())
                        if (property.name().equals(name)) return property.value();
            return null;
        }
    }

    public static void main(String[] none) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                var asked = JSON.readTree(line);
                var folder = asked.get("application").asText();
                if (!APPLICATIONS.containsKey(folder)) APPLICATIONS.put(folder, new Application(folder));
                var application = APPLICATIONS.get(folder);
                answer.put("scores", asked.has("global") ? globally(application, asked) : first(application, asked));
            } catch (Throwable error) {
                var said = new StringBuilder();
                for (var each = error; each != null; each = each.getCause()) said.append(each).append("\n");
                answer.put("error", said.toString());
            }
            System.out.println("answer " + JSON.writeValueAsString(answer));
            System.out.flush();
        }
    }

    /** The first phase: a number for each document, whose features are given by name. */
    static List<Double> first(Application application, JsonNode asked) {
        var profile = asked.get("profile").asText();
        var model = application.models.get(profile);
        if (model == null) throw new IllegalArgumentException("no rank profile " + profile);
        var scores = new ArrayList<Double>();
        for (var document : asked.get("documents")) {
            var evaluator = model.evaluatorOf("firstphase");
            var byDefault = application.property(profile, "query(w)");
            var weights = asked.has("weights") ? asked.get("weights").asText() : byDefault;
            if (weights != null) evaluator.bind("query(w)", Tensor.from("tensor<double>(feature{})", weights));
            for (var name : evaluator.function().argumentTypes().keySet())
                if (!name.equals("query(w)")) evaluator.bind(name, value(model, name, document));
            scores.add(evaluator.evaluate().asDouble());
        }
        return scores;
    }

    /** What an argument stands for: a feature that is given, or a function of the profile. */
    static Tensor value(Model model, String name, JsonNode document) {
        if (!name.startsWith("rankingExpression(")) return Tensor.from(document.get(name).asDouble());
        var evaluator = model.evaluatorOf(name.substring("rankingExpression(".length(), name.length() - 1));
        for (var each : evaluator.function().argumentTypes().keySet()) evaluator.bind(each, value(model, each, document));
        return evaluator.evaluate();
    }

    /** The global phase: hits with their match features, ranked anew; the scores in the order of the documents. */
    static List<Double> globally(Application application, JsonNode asked) {
        var evaluator = new RankProfilesEvaluator(application.profiles, Application.constants(),
                application.expressions, Application.onnx(), application.files, null);
        var registry = new ComponentRegistry<RankProfilesEvaluator>();
        registry.register(new ComponentId("ranking-expression-evaluator." + application.schema), evaluator);
        registry.freeze();
        var query = new Query("?query=x&ranking.profile=" + asked.get("profile").asText());
        asked.get("inputs").fields().forEachRemaining(
                each -> query.getRanking().getFeatures().put(each.getKey(), each.getValue().asDouble()));
        var result = new Result(query);
        var hits = new ArrayList<Hit>();
        for (var document : asked.get("documents")) {
            var features = new Value.ObjectValue();
            document.fields().forEachRemaining(each -> features.put(each.getKey(), each.getValue().asDouble()));
            var hit = new Hit("hit" + hits.size(), 1.0);
            hit.setField("matchfeatures", new FeatureData(features));
            hits.add(hit);
            result.hits().add(hit);
        }
        query.setHits(hits.size());
        var ranker = new GlobalPhaseRanker(new RankProfilesEvaluatorFactory(registry));
        ranker.rerankHits(query, result, application.schema);
        return hits.stream().map(each -> each.getRelevance().getScore()).toList();
    }
}
