// Search in pages that are opened from the disk. A browser starts no worker from file://, so the script of the search
// runs in a hidden frame. The theme's own way loads such a script from the network; this site loads nothing from there.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    #frame = document.createElement("iframe");
    #loaded;

    constructor(url) {
      super();
      this.#frame.hidden = true;
      this.#frame.srcdoc = `<script>postMessage = (data) => parent.postMessage(data, "*");</script>` +
        `<script src="${new URL(url, location.href)}"></script>`;
      this.#loaded = new Promise((done) => this.#frame.addEventListener("load", done, { once: true }));
      document.body.append(this.#frame);
      addEventListener("message", ({ source, data }) => {
        if (source === this.#frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    postMessage(data) {
      this.#loaded.then(() => this.#frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.#frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
