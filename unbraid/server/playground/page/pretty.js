// @ts-check
/**
 * JSON with line breaks, also while it comes in. The text is walked through, and never parsed: no digit is lost, and what
 * is broken stays as it is. Pieces keep what they belong to.
 */

/**
 * @template T
 * @param {[string, T][]} pieces
 * @returns {[string, T][]}
 */
export function pretty(pieces) {
  /** @type {[string, T][]} */
  const written = [];
  let depth = 0;
  let quoted = false;
  let escaped = false;
  let opened = false; // right after a bracket: nothing is in it so far
  const put = (/** @type {string} */ text, /** @type {T} */ of) => {
    const last = written.at(-1);
    if (last && last[1] === of) last[0] += text;
    else written.push([text, of]);
  };
  const line = (/** @type {T} */ of) => put(`\n${"  ".repeat(depth)}`, of);
  for (const [text, of] of pieces) {
    for (const char of text) {
      if (quoted) {
        put(char, of);
        quoted = escaped || char !== '"';
        escaped = !escaped && char === "\\";
        continue;
      }
      if (/\s/.test(char)) continue;
      if (char === "}" || char === "]") {
        depth = Math.max(0, depth - 1);
        if (!opened) line(of);
        opened = false;
        put(char, of);
        continue;
      }
      if (opened) {
        line(of);
        opened = false;
      }
      put(char, of);
      if (char === '"') quoted = true;
      else if (char === "{" || char === "[") {
        depth += 1;
        opened = true;
      } else if (char === ",") line(of);
      else if (char === ":") put(" ", of);
    }
  }
  return written;
}
