// The shared worker: one Hub for all pages of this browser.

import { Hub } from "./hub.js";

const SILENT_MS = 150000; // a page reports every few seconds, a hidden one every minute; then it is gone
const hub = new Hub();

self.onconnect = (event) => {
  const port = event.ports[0], client = (message) => port.postMessage(message);
  let timer = null;
  port.onmessage = ({ data }) => {
    clearTimeout(timer);
    if (data.leave) {
      hub.leave(client);
      return;
    }
    timer = setTimeout(() => hub.leave(client), SILENT_MS);
    if (data.runs) hub.watch(client, data.runs);
  };
  port.start();
};
