// @ts-check
/** The page: its views, the theme, and the link. Each view is a module with `show(place)`. */
import { config, connect, during, Trouble } from "./api.js";
import { copy, fill, h, say, tabs } from "./dom.js";
import { hasBefore, link, read, state, takeBefore, write } from "./state.js";

/** @type {Record<string, {label: string, load: () => Promise<{show: (place: HTMLElement) => Promise<void> | void}>}>} */
const VIEWS = {
  apart: { label: "Take apart", load: () => import("./apart.js") },
  constrain: { label: "Constrain", load: () => import("./constrain.js") },
  chat: { label: "Chat", load: () => import("./chat.js") },
  talk: { label: "Talk", load: () => import("./talk.js") },
  transcribe: { label: "Transcribe", load: () => import("./transcribe.js") },
  compare: { label: "Compare", load: () => import("./compare.js") },
};
const main = /** @type {HTMLElement} */ (document.getElementById("main"));

async function show() {
  const name = state.view;
  document.title = `${VIEWS[name].label} · unbraid playground`;
  const place = h("div", { class: `view ${name}`, role: "tabpanel", id: "view", aria: { labelledby: `view-${name}` } });
  fill(main, place);
  try {
    await during(async () => (await VIEWS[name].load()).show(place));
  } catch (error) {
    trouble(error);
  }
  write();
}

/** @param {unknown} error */
function trouble(error) {
  say(error instanceof Trouble ? error.message : `The page made a mistake: ${error}`);
  if (!(error instanceof Trouble)) console.error(error);
}

function showTabs() {
  const list = /** @type {HTMLElement} */ (document.getElementById("views"));
  const names = Object.entries(VIEWS).map(([name, { label }]) => /** @type {[string, string]} */ ([name, label]));
  const choose = (/** @type {string} */ name) => {
    if (name !== state.view) history.pushState({ view: name }, "", location.href);
    goTo(name);
  };
  if (!names.some(([name]) => name === state.view)) state.view = "apart";
  tabs("Views", names, state.view, choose, list, "view");
}

/** @param {string} name */
function goTo(name) {
  state.view = name;
  say("");
  void show();
}

function setTheme() {
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("theme"));
  const themes = ["auto", "light", "dark"];
  const use = (/** @type {string} */ theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[theme] ?? "Theme";
    button.setAttribute("aria-label", `${button.textContent}. Change it`);
    localStorage.setItem("unbraid-theme", theme);
  };
  use(localStorage.getItem("unbraid-theme") ?? "auto");
  button.onclick = () => use(themes[(themes.indexOf(document.documentElement.dataset.theme ?? "auto") + 1) % 3]);
}

/** Who opens a link can go back to what was typed before. */
function offerBefore() {
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("before"));
  button.hidden = !hasBefore();
  button.onclick = () => {
    takeBefore();
    button.hidden = true;
    showTabs();
    goTo(state.view);
  };
}

async function begin() {
  setTheme();
  const button = /** @type {HTMLButtonElement} */ (document.getElementById("copy-link"));
  button.onclick = async () => copy(await link(), "The link");
  await read();
  history.replaceState({ view: state.view }, "", location.href);
  try {
    await connect(say);
  } catch (error) {
    trouble(error);
    return;
  }
  showTabs();
  offerBefore();
  await show();
  if (!config.server && "serviceWorker" in navigator) {
    navigator.serviceWorker.register("offline.js").catch(() => {}); // without it the site works, only not offline
  }
  window.addEventListener("popstate", (event) => {
    if (!event.state?.view) return;
    state.view = event.state.view; // what was typed meanwhile stays
    showTabs();
    goTo(state.view);
  });
  window.addEventListener("hashchange", async () => {
    if (!history.state?.view && (await read())) {
      offerBefore();
      showTabs();
      await show();
    }
  });
}

void begin();
