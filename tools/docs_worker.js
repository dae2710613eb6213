// The search of the site runs in a worker, and a page that was opened from a folder may start none.
// There the worker's script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(script) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.onload = () => this.start(new URL(script, document.baseURI).href);
      document.documentElement.append(this.frame);
    }

    start(address) {
      const inside = this.frame.contentWindow;
      // Copies, as between a page and a worker: either side changes what it has.
      inside.postMessage = message => {
        const data = structuredClone(message);
        setTimeout(() => this.onmessage?.({ data }));
      };
      const element = inside.document.createElement("script");
      element.src = address;
      element.onload = () => {
        this.postMessage = message => {
          const data = structuredClone(message);
          setTimeout(() => inside.dispatchEvent(new MessageEvent("message", { data })));
        };
        this.waiting.forEach(data => this.postMessage(data));
      };
      inside.document.head.append(element);
    }

    postMessage(data) {
      this.waiting.push(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
}
