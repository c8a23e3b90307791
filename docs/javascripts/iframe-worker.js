// Search in pages that are opened from a disk. Browsers start no worker for them, so its script runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inner = this.frame.contentWindow;
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      const script = this.inner.document.createElement("script");
      script.src = url;
      this.loaded = new Promise((resolve) => {
        script.onload = resolve;
      });
      this.inner.document.body.append(script);
    }

    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
