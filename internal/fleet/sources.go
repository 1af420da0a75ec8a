package fleet

import (
	"cmp"
	"fmt"
	"log/slog"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/execplugin"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/source"
)

// contextsSource returns the source of kubeconfig contexts.
func contextsSource(c *config.Contexts, o source.ContextsOptions) (clusterinformers.Source, error) {
	o.Path, o.Names = c.Path, c.Names
	if !c.NoExec {
		var err error
		if o.PluginRunner, err = execplugin.Runner(); err != nil {
			return nil, err
		}
	}
	return source.NewContexts(o)
}

// newSources returns the sources that are configured. Where two describe one member the
// first has it.
func newSources(cfg config.Sources, network connection.Network, opts Options) ([]clusterinformers.Source, error) {
	userAgent, log := opts.UserAgent, opts.Logger
	var sources []clusterinformers.Source
	add := func(name string, src clusterinformers.Source, err error) error {
		if err != nil {
			return fmt.Errorf("sources.%s: %w", name, err)
		}
		sources = append(sources, src)
		return nil
	}
	if c := cfg.Contexts; c != nil {
		src, err := contextsSource(c, source.ContextsOptions{Network: network, Logger: log})
		if err := add("contexts", src, err); err != nil {
			return nil, err
		}
	}
	if c := cfg.Hub; c != nil && c.Enabled {
		config, err := restConfig(cmp.Or(c.Kubeconfig, cfg.Kubeconfig), userAgent)
		if err != nil {
			return nil, fmt.Errorf("sources.hub: %w", err)
		}
		src, err := source.NewHub(source.HubOptions{Config: config, Name: c.Name, Network: network, Logger: log})
		if err := add("hub", src, err); err != nil {
			return nil, err
		}
	}
	for i, c := range cfg.Federators {
		src, err := source.NewFederator(source.FederatorOptions{
			Name: c.Name, Installation: opts.Installation, Server: c.Server, CAFile: c.CAFile, TokenFile: c.TokenFile, Kubeconfig: c.Kubeconfig, Network: network, Logger: log,
		})
		if err := add(fmt.Sprintf("federators[%d]", i), src, err); err != nil {
			return nil, err
		}
	}
	// What an object of the hub is called takes no name of the configuration's.
	addReserving := func(name string, src clusterinformers.Source, err error) error {
		if err == nil {
			src = source.Reserving(src, cfg.FederatorNames(), log)
		}
		return add(name, src, err)
	}
	if err := addHubSources(cfg, userAgent, log, addReserving); err != nil {
		return nil, err
	}
	return sources, nil
}

// addHubSources adds the sources of what describes members on the hub.
func addHubSources(cfg config.Sources, userAgent string, log *slog.Logger, add func(string, clusterinformers.Source, error) error) error {
	if !cfg.OnHub() {
		return nil
	}
	hub, err := restConfig(cfg.Kubeconfig, userAgent)
	if err != nil {
		return fmt.Errorf("sources: %w", err)
	}
	if c := cfg.ClusterAPI; c != nil {
		src, err := source.NewClusterAPI(source.ClusterAPIOptions{Config: hub, Namespaces: c.Namespaces, Logger: log})
		if err := add("clusterAPI", src, err); err != nil {
			return err
		}
	}
	if c := cfg.Members; c != nil {
		src, err := source.NewMembers(source.MembersOptions{Config: hub, Namespaces: c.Namespaces, Logger: log})
		if err := add("members", src, err); err != nil {
			return err
		}
	}
	if c := cfg.ArgoCD; c != nil {
		src, err := source.NewArgoCD(source.ArgoCDOptions{Config: hub, Namespaces: c.Namespaces, Logger: log})
		if err := add("argoCD", src, err); err != nil {
			return err
		}
	}
	if c := cfg.ManagedClusters; c != nil {
		src, err := source.NewManagedClusters(source.ManagedClustersOptions{Config: hub, ProxyURL: c.ProxyURL, CAFile: c.CAFile, ServiceAccount: c.ServiceAccount, Logger: log})
		if err := add("managedClusters", src, err); err != nil {
			return err
		}
	}
	if c := cfg.ClusterProfiles; c != nil {
		runner, err := execplugin.Runner()
		if err != nil {
			return fmt.Errorf("sources.clusterProfiles: %w", err)
		}
		src, err := source.NewClusterProfiles(source.ClusterProfilesOptions{Config: hub, Namespaces: c.Namespaces, ProvidersFile: c.ProvidersFile, ProfileEnv: c.ProfileEnv, PluginRunner: runner, Logger: log})
		return add("clusterProfiles", src, err)
	}
	return nil
}

// restConfig loads the hub's credentials: a file's current context or, without
// a path, those of the pod.
func restConfig(path, userAgent string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if path == "" {
		config, err = rest.InClusterConfig()
	} else {
		config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, nil).ClientConfig()
	}
	if err != nil {
		if path == "" {
			return nil, fmt.Errorf("no kubeconfig is given and there are no in-cluster credentials (see --contexts and --hub-kubeconfig): %w", err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	config.UserAgent = userAgent
	return config, nil
}

// HubConfig returns the credentials for the hub, nil without a hub.
func HubConfig(c *config.Config, userAgent string) (*rest.Config, error) {
	switch {
	case c.Sources.OnHub():
		return restConfig(c.Sources.Kubeconfig, userAgent)
	case c.HasHub():
		return restConfig(cmp.Or(c.Sources.Hub.Kubeconfig, c.Sources.Kubeconfig), userAgent)
	}
	return nil, nil
}
