// @ts-check
/** Small helpers to make elements. Text is always text: nothing here parses HTML. */

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 */

/**
 * An element with properties and children. `on…` are listeners, `data` and `aria` objects of attributes.
 * @param {string} tag
 * @param {Record<string, any> | null} [props]
 * @param {...(Child | Child[])} children
 * @returns {any}
 */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "data" || name === "aria") {
      for (const [key, each] of Object.entries(value)) {
        if (each !== undefined && each !== null) element.setAttribute(`${name}-${key}`, String(each));
      }
    } else if (name in element && typeof value !== "string") /** @type {any} */ (element)[name] = value;
    else if (name === "value") /** @type {any} */ (element).value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

/** @param {(Child | Child[])[]} children */
function nodes(children) {
  return children
    .flat()
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (typeof child === "number" ? String(child) : /** @type {Node | string} */ (child)));
}

/** @param {Element} element @param {...(Child | Child[])} children */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
}

let count = 0;
/**
 * A field with its label.
 * @param {string} label @param {HTMLElement} control @param {string} [hint]
 */
export function field(label, control, hint) {
  control.id ||= `field-${(count += 1)}`;
  const told = hint ? h("p", { class: "hint", id: `${control.id}-hint` }, hint) : null;
  if (told) control.setAttribute("aria-describedby", told.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, told);
}

/**
 * A checkbox with its label.
 * @param {string} label @param {boolean} checked @param {(value: boolean) => void} change
 */
export function check(label, checked, change) {
  const box = h("input", { type: "checkbox", checked, onchange: () => change(box.checked) });
  return h("label", { class: "check" }, box, label);
}

/**
 * A list to choose from.
 * @param {[string, string][]} options value and label
 * @param {string} value @param {(value: string) => void} change
 */
export function select(options, value, change) {
  const list = h("select", { onchange: () => change(list.value) });
  fill(list, options.map(([each, label]) => h("option", { value: each, selected: each === value }, label)));
  list.value = value;
  return list;
}

/**
 * A text area that says when its text has changed, a moment after the last key.
 * @param {string} value @param {(value: string) => void} change @param {Record<string, any>} [props]
 */
export function area(value, change, props = {}) {
  const box = h("textarea", { spellcheck: false, rows: 4, ...props });
  box.value = value;
  let typed = false;
  const tell = () => {
    if (typed) change(box.value);
    typed = false;
  };
  const soon = later(tell, 200);
  box.addEventListener("input", () => {
    typed = true;
    soon();
  });
  box.addEventListener("change", tell); // it is left: whoever asks next finds what was typed
  return box;
}

/**
 * Tabs, to be used with the arrow keys.
 * @param {string} label @param {[string, string][]} names id and label
 * @param {string} chosen @param {(name: string) => void} choose
 * @param {HTMLElement} [list] @param {string} [panel] the id of the panel that they change
 */
export function tabs(label, names, chosen, choose, list = h("div", { class: "tabs" }), panel = "") {
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", label);
  const buttons = names.map(([name, shown]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        id: panel ? `${panel}-${name}` : undefined,
        aria: { selected: name === chosen, controls: panel || undefined },
        tabIndex: name === chosen ? 0 : -1,
        onclick: () => pick(name),
      },
      shown,
    ),
  );
  /** @param {string} name */
  const pick = (name) => {
    buttons.forEach((button, at) => {
      const is = names[at][0] === name;
      button.setAttribute("aria-selected", String(is));
      button.tabIndex = is ? 0 : -1;
    });
    choose(name);
  };
  list.onkeydown = (/** @type {KeyboardEvent} */ event) => {
    const at = buttons.indexOf(/** @type {any} */ (document.activeElement));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = (to + names.length) % names.length;
    buttons[next].focus();
    pick(names[next][0]);
  };
  fill(list, buttons);
  return list;
}

/**
 * Calls it a moment after the last call.
 * @template {any[]} A
 * @param {(...args: A) => void} work @param {number} wait
 */
export function later(work, wait) {
  let timer = 0;
  return (/** @type {A} */ ...args) => {
    clearTimeout(timer);
    timer = window.setTimeout(() => work(...args), wait);
  };
}

/** Say something to everybody, screen readers too. @param {string} text */
export function say(text) {
  const place = document.getElementById("status");
  if (place) place.textContent = text;
}

/** @param {string} text @param {string} what */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied.`);
  } catch {
    say(`The browser does not let this page copy. Select the text and copy it by hand.`);
  }
}

/** Save a text as a file. @param {string} text @param {string} name */
export function save(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
