package fleet

import (
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

// newSources returns the sources that are configured.
func newSources(cfg config.Sources, network connection.Network, userAgent string, log *slog.Logger) ([]clusterinformers.Source, error) {
	var sources []clusterinformers.Source
	if c := cfg.ClusterAPI; c != nil {
		config, err := restConfig(c.Kubeconfig, userAgent)
		if err != nil {
			return nil, fmt.Errorf("sources.clusterAPI: %w", err)
		}
		src, err := source.NewClusterAPI(source.ClusterAPIOptions{
			Config: config, Namespaces: c.Namespaces, Logger: log,
		})
		if err != nil {
			return nil, fmt.Errorf("sources.clusterAPI: %w", err)
		}
		sources = append(sources, src)
	}
	if c := cfg.Contexts; c != nil {
		src, err := contextsSource(c, source.ContextsOptions{Network: network, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("sources.contexts: %w", err)
		}
		sources = append(sources, src)
	}
	if c := cfg.Hub; c != nil && c.Enabled {
		path := c.Kubeconfig
		if path == "" && cfg.ClusterAPI != nil {
			path = cfg.ClusterAPI.Kubeconfig
		}
		config, err := restConfig(path, userAgent)
		if err != nil {
			return nil, fmt.Errorf("sources.hub: %w", err)
		}
		src, err := source.NewHub(source.HubOptions{Config: config, Name: c.Name, Network: network, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("sources.hub: %w", err)
		}
		sources = append(sources, src)
	}
	return sources, nil
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
	case c.Sources.ClusterAPI != nil:
		return restConfig(c.Sources.ClusterAPI.Kubeconfig, userAgent)
	case c.HasHub():
		return restConfig(c.Sources.Hub.Kubeconfig, userAgent)
	}
	return nil, nil
}
