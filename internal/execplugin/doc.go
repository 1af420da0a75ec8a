// Package execplugin runs exec plugins of kubeconfigs in a process group of their own, and
// ends them with everything that they have started.
//
// client-go runs a plugin without a deadline. It is given this command to run instead, which
// runs the plugin.
package execplugin
