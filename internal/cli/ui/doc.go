// Package ui is the command ui: the web UI of a server, in a browser on this machine, as the user
// of a kubeconfig. It is a proxy on a loopback address that adds the kubeconfig's credentials to
// requests of one browser, which proves itself by a code that is used once.
package ui
