package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"federator.dev/federator/internal/cli/queryclient"
)

// Names under which the binary is a plugin of kubectl, and completes one.
const (
	pluginName     = "kubectl-federator"
	completionName = "kubectl_complete-federator"
)

// commandOf returns the command tree for how the binary was called, and its arguments.
func commandOf(args []string) (*cobra.Command, []string) {
	root := newCommand()
	switch strings.TrimSuffix(filepath.Base(args[0]), ".exe") {
	case pluginName:
		asPlugin(root)
		return root, args[1:]
	case completionName:
		asPlugin(root)
		return root, append([]string{cobra.ShellCompRequestCmd}, args[1:]...)
	}
	return root, args[1:]
}

// asPlugin makes the commands those of a plugin of kubectl: they are called kubectl federator, and heed kubectl's flags.
func asPlugin(root *cobra.Command) {
	const name = "kubectl federator"
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	queryclient.RegisterKubectl(root.PersistentFlags())
	var rename func(*cobra.Command)
	rename = func(c *cobra.Command) {
		for _, text := range []*string{&c.Long, &c.Example} {
			*text = renamed(*text, name)
		}
		for _, below := range c.Commands() {
			rename(below)
		}
	}
	rename(root)
}

// renamed returns a text whose examples, which are indented, call the binary otherwise.
func renamed(text, name string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = strings.ReplaceAll(line, "  "+program+" ", "  "+name+" ")
			lines[i] = strings.ReplaceAll(lines[i], "| "+program+" ", "| "+name+" ")
		}
	}
	return strings.Join(lines, "\n")
}

// program is the binary's own name.
const program = "federator"
