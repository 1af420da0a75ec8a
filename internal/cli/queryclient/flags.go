package queryclient

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/kubeconfigfile"
)

// Flags say how to reach the query API, and how to print responses.
type Flags struct {
	Kubeconfig string
	context    string
	Output     string

	Version string // of federator

	cmd *cobra.Command // that has the flags
}

// Register registers all flags.
func (f *Flags) Register(cmd *cobra.Command) {
	f.RegisterServer(cmd)
	cmd.Flags().StringVarP(&f.Output, "output", "o", "table", "table, wide, json or yaml")
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp)))
}

// RegisterServer registers the flags that say how to reach the query API.
func (f *Flags) RegisterServer(cmd *cobra.Command) {
	f.cmd = cmd
	fs := cmd.Flags()
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "", "`file` with a context of the query API, as federator kubeconfig writes it (default KUBECONFIG, else ~/.kube/config, else that of a local server without a hub)")
	fs.StringVar(&f.context, "context", "", "`context` of the kubeconfig (default \"fleet\", else the current one)")
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

// RESTConfig returns how to reach the query API.
func (f *Flags) RESTConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	file, err := rules.Load()
	if err != nil {
		return nil, err
	}
	overrides, err := f.overrides()
	if err != nil {
		return nil, err
	}
	name := f.context
	if name == "" && overrides.ClusterInfo.Server == "" {
		name = standard(file)
	}
	if name == "" && f.Kubeconfig == "" && overrides.ClusterInfo.Server == "" {
		// A server on this machine comes before the current context, which is
		// probably not a query API.
		local, err := kubeconfigfile.Path("")
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(local); err == nil {
			return clientcmd.BuildConfigFromFlags("", local)
		}
		return nil, fmt.Errorf("no query API found: there is no context %q in %s, and no kubeconfig of a local server at %s; "+
			"start one with `federator serve --contexts …`, write a context with `federator kubeconfig`, or name one with --context or --kubeconfig",
			kubeconfigfile.FleetContext, strings.Join(rules.GetLoadingPrecedence(), ", "), local)
	}
	return clientcmd.NewNonInteractiveClientConfig(*file, name, overrides, rules).ClientConfig()
}

// standard returns the context of a kubeconfig that is for the query API: "fleet", or the current one where that is of one.
func standard(file *clientcmdapi.Config) string {
	if file.Contexts[kubeconfigfile.FleetContext] != nil {
		return kubeconfigfile.FleetContext
	}
	current := file.Contexts[file.CurrentContext]
	if current == nil || file.Clusters[current.Cluster] == nil {
		return ""
	}
	u, err := url.Parse(file.Clusters[current.Cluster].Server)
	if err != nil {
		return ""
	}
	switch path := strings.TrimSuffix(u.Path, "/"); {
	case path == "/fleet", path == "/flat", strings.HasPrefix(path, "/members/"):
		return file.CurrentContext
	}
	return ""
}

// SetChanged sets the parameters of flags that were set.
func SetChanged(fs *pflag.FlagSet, query url.Values, names map[string]string) {
	for flag, parameter := range names {
		if f := fs.Lookup(flag); f != nil && f.Changed {
			query.Set(parameter, f.Value.String())
		}
	}
}
