// Asking the service. Nothing is kept but the token, until the tab is closed.

const PATIENCE = 60; // seconds for an answer
export const TOKEN = "querywise.token";

const running = {}; // what is being asked for, by purpose: a new question ends the one before it

export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function ask(purpose, path, body, kind = "json") {
  running[purpose]?.abort();
  const control = new AbortController();
  running[purpose] = control;
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const options = body ? { method: "POST", body: JSON.stringify(body), headers: { ...headers, "content-type": "application/json" } } : { headers };
  const late = new Problem(0, `The service at ${location.host} has not answered for ${PATIENCE} seconds.`);
  const timer = setTimeout(() => control.abort(late), 1000 * PATIENCE);
  let answer;
  let said;
  try {
    answer = await fetch(path, { ...options, signal: control.signal });
    said = await (answer.ok && kind === "text" ? answer.text() : answer.json()).catch((error) => {
      if (control.signal.aborted) throw error;
      return null;
    });
  } catch (error) {
    if (control.signal.aborted) throw error;
    throw new Problem(0, `The service at ${location.host} cannot be reached. Is it still running?`);
  } finally {
    clearTimeout(timer);
  }
  if (!answer.ok || said === null) {
    throw new Problem(answer.status, said?.error?.message ?? `The service answered with status ${answer.status}.`);
  }
  return said;
}

export function forget(purpose) {
  running[purpose]?.abort();
}
