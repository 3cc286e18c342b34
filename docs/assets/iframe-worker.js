// Search runs in a worker, and browsers give none to pages that are opened as files. There, a hidden frame takes the
// worker's place. (Material for MkDocs would load such a script from elsewhere.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      // Inside of the frame: what a worker says goes to the page, and its further scripts are loaded one by one.
      this.frame.srcdoc = `<script>
        window.postMessage = data => parent.postMessage(data, "*");
        window.importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, failed) => {
          document.head.append(Object.assign(document.createElement("script"), { src: url, onload: done, onerror: failed }));
        })), Promise.resolve());
      </script><script src="${new URL(url, location)}"></script>`;
      this.frame.addEventListener("load", () => {
        const waiting = this.waiting;
        this.waiting = null;
        waiting.forEach(data => this.postMessage(data));
      });
      addEventListener("message", event => {
        if (event.source === this.frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
          this.onmessage?.(event);
        }
      });
      document.documentElement.append(this.frame);
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
