// Package agents has very many agents connect to one federator: real TLS, certificates, tokens and a
// real hub, while the members behind them are simulated API servers that hold little.
//
// They join, federator restarts under them, and the CA of their certificates is replaced. Nobody may be lost,
// nothing be listed again that can be continued, and federator not be stormed by those that come back.
//
// make agents has AGENTS of them, a thousand by default; make test a few.
package agents
