// Package git is a harness for programs that read git: repositories made by the
// real git, served over HTTPS by git http-backend and over SSH by git upload-pack.
//
// Repositories ignore the user's and the system's configuration, and their commits
// have fixed authors and times, so that equal contents give equal hashes.
//
// # Concurrency
//
// A Repo is for one goroutine at a time; servers serve any number, and Close waits
// for all of them.
package git
