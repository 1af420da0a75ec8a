package queryclient

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/kubeconfigfile"
)

// Flags say which query API is asked, and how the answer is printed.
type Flags struct {
	Kubeconfig string
	context    string
	Output     string

	Version string // of federator
}

func (f *Flags) Register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "`file` that leads to the query API, as federator kubeconfig writes it (default KUBECONFIG, else ~/.kube/config, else that of a server without a hub)")
	fs.StringVar(&f.context, "context", "", "`context` in it (default \"fleet\", else the current one)")
	fs.StringVarP(&f.Output, "output", "o", "table", "table, wide, json or yaml")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *Flags) CheckOutput() error {
	switch f.Output {
	case "table", "wide", "json", "yaml":
		return nil
	}
	return fmt.Errorf("--output: %q is not table, wide, json or yaml", f.Output)
}

func (f *Flags) Client() (*Client, error) {
	config, err := f.RESTConfig()
	if err != nil {
		return nil, err
	}
	return New(config, f.Version)
}

// RESTConfig finds the configuration that leads to the query API.
func (f *Flags) RESTConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	file, err := rules.Load()
	if err != nil {
		return nil, err
	}
	name := f.context
	if name == "" && file.Contexts[kubeconfigfile.FleetContext] != nil {
		name = kubeconfigfile.FleetContext
	}
	if name == "" && f.Kubeconfig == "" {
		// Nobody has said where: a server on this machine comes before
		// somebody's current cluster, which is no query API.
		local, err := kubeconfigfile.Path("")
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(local); err == nil {
			return clientcmd.BuildConfigFromFlags("", local)
		}
		return nil, fmt.Errorf("no query API is found: there is no context %q in %s, and no kubeconfig of a server on this machine at %s; "+
			"start one with `federator serve --contexts …`, have federator kubeconfig write a context, or name one with --context or --kubeconfig",
			kubeconfigfile.FleetContext, strings.Join(rules.GetLoadingPrecedence(), ", "), local)
	}
	return clientcmd.NewNonInteractiveClientConfig(*file, name, nil, rules).ClientConfig()
}

// SetChanged adds the flags of a query that were given.
func SetChanged(fs *pflag.FlagSet, query url.Values, names map[string]string) {
	for flag, parameter := range names {
		if f := fs.Lookup(flag); f != nil && f.Changed {
			query.Set(parameter, f.Value.String())
		}
	}
}

// Complete answers a shell with what ask finds, and with nothing on trouble.
func (f *Flags) Complete(cmd *cobra.Command, ask func(context.Context, *Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	a, err := f.Client()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, err := ask(ctx, a)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	slices.Sort(found)
	return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
}

// CompleteResources completes the first argument with the resources served.
func (f *Flags) CompleteResources(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) { return a.resourceNames(ctx) })
}

// CompleteKinds completes a flag's resources, whatever the arguments are.
func (f *Flags) CompleteKinds(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return f.CompleteResources(cmd, nil, typed)
}

func (f *Flags) CompleteMembers(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) { return a.Members(ctx) })
}

func (f *Flags) CompleteNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return f.Complete(cmd, func(ctx context.Context, a *Client) ([]string, error) {
		return a.Names(ctx, a.Target+"/api/v1/namespaces", nil)
	})
}
