// Leads Node's connections to the loopback server of once_fakes: http, https and fetch look at no proxy variable.
// Loaded by NODE_OPTIONS=--require. What connects to another machine's port 80 or 443 connects to the server instead,
// which tells the provider by the host name that TLS and HTTP still carry. Other ports are left alone.
"use strict";
const net = require("node:net");

const server = { host: "127.0.0.1", port: Number(process.env.ONCE_REDIRECT_PORT) };
const here = (host) => !host || host === "localhost" || host === "::1" || /^127\./.test(host);
const moved = (options) =>
  options && typeof options === "object" && !options.path && !here(options.host) && [80, 443].includes(Number(options.port))
    ? { ...options, ...server, lookup: undefined }
    : options;

if (server.port) {
  const connect = net.Socket.prototype.connect;
  net.Socket.prototype.connect = function (...args) {
    if (Array.isArray(args[0])) args[0][0] = moved(args[0][0]); // from net.connect: [options, callback], marked as such
    else if (typeof args[0] === "object") args[0] = moved(args[0]);
    else if (typeof args[1] === "string") {
      const { port, host } = moved({ port: args[0], host: args[1] });
      args.splice(0, 2, port, host);
    }
    return connect.apply(this, args);
  };
}
