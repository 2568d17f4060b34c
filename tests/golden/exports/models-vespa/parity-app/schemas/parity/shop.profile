rank-profile shop {
    inputs {
        query(w) tensor<double>(feature{}):{title_bm25:-0.09503724123239304,body_bm25:0.00007789250891773478,clicks:23.400826173439963,length:-0.000002375185816239592,f_age:-0.6552042650847922}
    }
    function title_bm25() {
        expression: attribute(value0)
    }
    function body_bm25() {
        expression: attribute(value1)
    }
    function clicks() {
        expression: attribute(value2)
    }
    function length() {
        expression: attribute(value3)
    }
    function f_age() {
        expression: attribute(value4)
    }
    function features() {
        expression: tensor<double>(feature{}):{title_bm25:title_bm25,body_bm25:body_bm25,clicks:clicks,length:length,f_age:f_age}
    }
    first-phase {
        expression: sum(query(w) * features)
    }
    match-features {
        title_bm25
        body_bm25
        clicks
        length
        f_age
    }
}
