// @ts-check
/** The documentation, as it comes with this version: the Markdown of `docs/`, shown by the part of the address after `#`.
 *
 * `#server.md` is a page, `#server.md:access` a heading of it. It reads the Markdown that those pages are written in.
 */
import { fill, h } from "./dom.js";

const FIRST = "playground.md";
const INLINE = /(`+)(.+?)\1(?!`)|\*\*(.+?)\*\*|(?<!\w)\*([^*\s](?:[^*]*[^*\s])?)\*|(!?)\[((?:`[^`]*`|[^\]`])*)\]\(([^)\s]+)\)|<a id="([\w-]+)"><\/a>|\\([\\`*_[\]|<>])/s;
const ITEM = /^( *)([-*]|\d+\.) +(.*)$/;

/** What stands in a line. @param {string} text @param {string} page @returns {(Node | string)[]} */
function inline(text, page) {
  const part = INLINE.exec(text);
  if (!part) return [text];
  const [whole, , code, bold, slanted, image, label, target, anchor, plain] = part;
  /** @type {Node | string} */
  let node = plain ?? "";
  if (code !== undefined) node = h("code", null, code.replace(/^ (.*) $/s, "$1"));
  else if (bold !== undefined) node = h("strong", null, inline(bold, page));
  else if (slanted !== undefined) node = h("em", null, inline(slanted, page));
  else if (image) node = h("img", { src: `docs/${target}`, alt: label });
  else if (target !== undefined) node = link(label, target, page);
  else if (anchor !== undefined) node = h("span", { id: `${page}:${anchor}` });
  return [text.slice(0, part.index), node, ...inline(text.slice(part.index + whole.length), page)];
}

/** @param {string} label @param {string} target @param {string} page */
function link(label, target, page) {
  if (/^https?:/.test(target)) return h("a", { href: target, rel: "noopener" }, inline(label, page));
  const [path, anchor] = target.split("#");
  if (path.includes("/")) return h("span", null, inline(label, page)); // a file of the source
  return h("a", { href: `#${path || page}${anchor ? `:${anchor}` : ""}` }, inline(label, page));
}

/** The blocks of some lines. @param {string[]} lines @param {string} page @returns {Node[]} */
function blocks(lines, page) {
  /** @type {Node[]} */
  const shown = [];
  let at = 0;
  /** The lines up to one that ends them. @param {(line: string) => boolean} ends */
  const until = (ends) => {
    const from = at;
    while (at < lines.length && !ends(lines[at])) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at];
    const heading = /^(#+) +(.*)$/.exec(line);
    if (!line.trim() || line.startsWith("<!--")) at += 1;
    else if (line.startsWith("```")) {
      at += 1;
      const fence = line.slice(0, line.search(/[^`]|$/));
      shown.push(h("pre", { tabIndex: 0 }, until((each) => each.startsWith(fence)).join("\n")));
      at += 1;
    } else if (heading) {
      at += 1;
      const slug = heading[2].toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");
      shown.push(h(`h${heading[1].length}`, { id: `${page}:${slug}` }, inline(heading[2], page)));
    } else if (line.startsWith("|")) shown.push(table(until((each) => !each.startsWith("|")), page));
    else if (ITEM.test(line)) shown.push(list(until((each) => /^\S/.test(each) && !ITEM.test(each)), page));
    else shown.push(h("p", null, inline(until((each) => !each.trim() || each.startsWith("```") || ITEM.test(each)).join("\n"), page)));
  }
  return shown;
}

/** @param {string[]} lines @param {string} page */
function list(lines, page) {
  /** @type {string[][]} */
  const items = [];
  const [, margin, mark] = /** @type {string[]} */ (ITEM.exec(lines[0]));
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= margin.length) items.push([item[3]]);
    else items[items.length - 1].push(line);
  }
  const indent = margin.length + mark.length + 1;
  const shown = items.map(([first, ...rest]) => h("li", null, blocks([first, ...rest.map((line) => line.replace(new RegExp(`^ {0,${indent}}`), ""))], page)));
  return h(/\d/.test(mark) ? "ol" : "ul", null, shown);
}

/** @param {string[]} lines @param {string} page */
function table(lines, page) {
  const rows = lines.map((line) => line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim()));
  const [head, , ...body] = rows.map((cells, row) => h("tr", null, cells.map((cell) => h(row ? "td" : "th", null, inline(cell, page)))));
  return h("div", { class: "scroll", tabIndex: 0 }, h("table", null, h("thead", null, head), h("tbody", null, body)));
}

async function show() {
  const place = /** @type {HTMLElement} */ (document.getElementById("document"));
  const [page, anchor] = (decodeURIComponent(location.hash.slice(1)) || FIRST).split(":");
  for (const each of document.querySelectorAll("nav a")) {
    if (each.getAttribute("href") === `#${page}`) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  if (place.dataset.page !== page) {
    const reply = /^[\w-]+\.md$/.test(page) ? await fetch(`docs/${page}`) : null;
    fill(place, ...(reply?.ok ? blocks((await reply.text()).split("\n"), page) : [h("h1", null, "No such page"), h("p", null, "It is not part of this version's documentation.")]));
    place.dataset.page = page;
    document.title = `${place.querySelector("h1")?.textContent} · unbraid`;
    if (!anchor) scrollTo(0, 0);
  }
  if (anchor) document.getElementById(`${page}:${anchor}`)?.scrollIntoView();
}

addEventListener("hashchange", () => void show());
void show();
