// Package docs tests the documentation. Every command in a sh or console block of
// README.md, CONTRIBUTING.md, docs/ and the chart's README is run as it stands, by
// bash, with the real federator, kubectl, helm and git, against a hub and two members;
// what cannot run is listed with its reason and checked in another way. The reference
// in docs/reference is generated here and must be up to date.
//
// # How a document runs
//
// A document is a session: a directory of its own with links to charts/ and policies/,
// and a home whose kubeconfig has the contexts hub (the current one), dev and staging,
// the latter two being the members fleet/eu-1 and fleet/us-1. Blocks run in order;
// exported variables and the working directory stay. A command that fails is tried
// again for a while, as a reader would who types it a moment later.
//
//   - A yaml or rego block whose first line is a comment with a file name, such as
//     "# federator.yaml", is written to that file. Any other yaml block must be
//     Kubernetes objects that the hub accepts in a dry run.
//   - A command whose comment says "exits with N" must exit with N.
//   - What follows a command in a console block is its output: spaces, and words with
//     digits in them, may differ; a line "..." stands for any number of lines.
//
// Servers that a document starts go on in the background until its end.
package docs
