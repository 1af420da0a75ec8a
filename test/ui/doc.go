// Package ui plays stories in the web UI with a real browser: the built binary on real control
// planes with git, and on many simulated members. The stories themselves are in ui/stories, in
// TypeScript; what must happen to the fleet meanwhile, they ask of the fleet's driver, by HTTP.
//
// It needs Chromium, Node and npm. Where one is missing, tests are skipped and say so, unless CI
// is set: then they fail.
package ui
