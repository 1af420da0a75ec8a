package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/enforce"
	"federator.dev/federator/pkg/policyquery"
	"federator.dev/federator/pkg/queryapi"
)

// querySource gives the query API what members say beside their objects.
type querySource struct{ *clusterinformers.Manager }

// Resources implements queryapi.Fleet.
func (s querySource) Resources() ([]queryapi.ServedResource, <-chan struct{}) {
	resources, changed := s.Manager.Resources()
	served := make([]queryapi.ServedResource, len(resources))
	for i, r := range resources {
		served[i] = queryapi.ServedResource(r)
	}
	return served, changed
}

// LastContact implements queryapi.Fleet.
func (s querySource) LastContact(member string, kind aggregate.Kind) time.Time {
	return s.Heard(member, kind)
}

// newQueryServer opens the query API's listener and returns its server; nil
// where none is wanted. Nothing is served yet.
func newQueryServer(ctx context.Context, cfg Config, f *fleet, loop *enforce.Loop, log *slog.Logger, metrics prometheus.Registerer) (*queryapi.Server, error) {
	q := cfg.Query
	if q.Listen == "" {
		return nil, nil
	}
	hub, err := cfg.hubConfig()
	if err != nil {
		return nil, err
	}
	listener, err := listenTCP(ctx, "query", q.Listen)
	if err != nil {
		return nil, err
	}
	source := querySource{f.manager}
	opts := queryapi.Options{
		Queries: queries(f.index, loop, f.manager.Kinds),
		Index:   f.index, Fleet: source, Logger: log, Metrics: metrics, Listener: listener,
		Hub: hub, Local: hub == nil, ValuesRedacted: !cfg.KeepSecretValues,
		TLS:            queryapi.TLS{CertFile: q.TLS.CertFile, KeyFile: q.TLS.KeyFile, Hosts: q.TLS.Hosts, MinVersion: tlsVersions[q.TLS.MinVersion]},
		Authentication: queryapi.Authentication{Audiences: q.Audiences, ClientCAFile: q.ClientCAFile},
		Fairness:       queryapi.Fairness{Priority: q.Priority, MaxInFlight: q.MaxInFlight, MaxWatches: q.MaxWatches},
		Limits:         queryapi.Limits{Request: q.Timeout},
		Audit: queryapi.Audit{
			PolicyFile: q.Audit.PolicyFile, LogFile: q.Audit.LogFile,
			MaxBytes: q.Audit.MaxBytes, MaxBackups: q.Audit.MaxBackups, MaxAge: q.Audit.MaxAge,
		},
		Authorization: queryapi.Authorization{
			AllowTTL: q.AllowTTL, DenyTTL: q.DenyTTL,
		},
	}
	if q.AskMembers != nil {
		opts.Authorization.Members, opts.Authorization.UserPrefix = f.manager, q.AskMembers.UserPrefix
	}
	server, err := queryapi.New(opts)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	log.Info("listening", "server", "query", "address", listener.Addr().String())
	if err := writeLocal(q.Kubeconfig, server, listener.Addr(), hub == nil, log); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return server, nil
}

// queries returns the queries about policies: Rego and violations.
func queries(index *aggregate.Index, loop *enforce.Loop, kinds policyquery.Kinds) map[string]queryapi.Query {
	rego := &policyquery.Rego{Index: index, Kinds: kinds}
	if loop == nil {
		return map[string]queryapi.Query{"rego": rego}
	}
	rego.State = loop.State
	return map[string]queryapi.Query{"rego": rego, "violations": policyquery.Violations{Kinds: kinds, Loop: loop}}
}

// hubConfig returns the credentials for the hub, nil where there is none.
func (c *Config) hubConfig() (*rest.Config, error) {
	switch {
	case c.Sources.ClusterAPI != nil:
		return restConfig(c.Sources.ClusterAPI.Kubeconfig)
	case c.hasHub():
		return restConfig(c.Sources.Hub.Kubeconfig)
	}
	return nil, nil
}

// localContext and flatContext are the contexts of a local server's kubeconfig, over
// all members; federator kubeconfig adds one for each member, with a slash in its name.
const (
	localContext = "fleet"
	flatContext  = "flat"
)

// authoritySuffix comes after the name of a server's kubeconfig: the file beside it with
// the authority of a certificate that the server made itself.
const authoritySuffix = ".ca.crt"

// writeLocal writes what users of this machine need to reach a server: the authority of a
// certificate that it made itself and, without a hub, address and token.
func writeLocal(path string, server *queryapi.Server, addr net.Addr, withoutHub bool, log *slog.Logger) error {
	path, err := localKubeconfig(path)
	if err == nil {
		err = writeAuthority(path+authoritySuffix, server.CertificateAuthority())
	}
	switch {
	case err != nil && withoutHub:
		return fmt.Errorf("query.kubeconfig: %w", err)
	case err != nil: // tokens and their owners are the hub's, who may be elsewhere
		log.Warn("the authority of the server's certificate is not written; federator kubeconfig needs --certificate-authority", "error", err)
	case !withoutHub && server.CertificateAuthority() != nil:
		log.Info("federator kubeconfig finds the authority of the server's certificate", "file", path+authoritySuffix)
	}
	if !withoutHub {
		return nil
	}
	if err := writeLocalKubeconfig(path, server, addr); err != nil {
		return fmt.Errorf("query.kubeconfig: %w", err)
	}
	log.Info("kubectl can ask the fleet", "kubeconfig", path)
	return nil
}

// writeAuthority writes an authority, unless there is none.
func writeAuthority(path string, pem []byte) error {
	if pem == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, pem, 0o600)
}

// writeLocalKubeconfig writes how to reach a server without a hub, for its
// owner's eyes only.
func writeLocalKubeconfig(path string, server *queryapi.Server, addr net.Addr) error {
	config := clientcmdapi.NewConfig()
	for name, path := range map[string]string{localContext: "/fleet", flatContext: "/flat"} {
		config.Clusters[name] = &clientcmdapi.Cluster{
			Server: "https://" + addr.String() + path, CertificateAuthorityData: server.CertificateAuthority(),
			DisableCompression: true, // the way is short
		}
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: localContext}
	}
	config.AuthInfos[localContext] = &clientcmdapi.AuthInfo{Token: server.Token()}
	config.CurrentContext = localContext
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeSecret(path, *config)
}

// localKubeconfig returns the file that is meant by a setting.
func localKubeconfig(path string) (string, error) {
	if path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("query.kubeconfig: %w", err)
	}
	return filepath.Join(dir, "federator", "kubeconfig"), nil
}
