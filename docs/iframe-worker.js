/* Search from a file: a page opened from disk may start no worker, so one runs in a hidden frame instead. */
"use strict";
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      const listen = (event) => {
        if (event.source !== frame.contentWindow) return;
        const message = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(message);
        if (this.onmessage) this.onmessage(message);
      };
      window.addEventListener("message", listen);
      this.stop = () => window.removeEventListener("message", listen);
      const inside = frame.contentWindow.document;
      inside.open();
      inside.write(`<html><body><script>
        postMessage = parent.postMessage.bind(parent);
        importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((resolve, reject) => {
          const script = document.createElement("script");
          script.src = url;
          script.onload = resolve;
          script.onerror = reject;
          document.body.appendChild(script);
        })), Promise.resolve());
      <\/script><script src="${url}"><\/script></body></html>`);
      this.ready = new Promise((resolve) => frame.addEventListener("load", resolve));
      inside.close();
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.stop();
      this.frame.remove();
    }
  };
}
