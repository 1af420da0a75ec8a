package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// HubOptions is a source with one member: the cluster that a configuration leads to,
// read with the same credentials and never written to. Config and Logger
// are required.
type HubOptions struct {
	Config  *rest.Config
	Name    string             // <namespace>/<name>; "" means hub/local
	Network connection.Network // as in Options; loopback addresses are allowed anyway
	Logger  *slog.Logger
}

const defaultHubName = "hub/local"

type hub struct {
	HubOptions
	server string
}

// NewHub returns the source, or what is wrong with the options. A configuration
// that only code can describe, with a transport or dialer of its own, is
// refused here; one that breaks the rules for kubeconfigs of a hub makes a member
// that is refused.
func NewHub(o HubOptions) (clusterinformers.Source, error) {
	if o.Logger == nil {
		return nil, errors.New("hub: Logger is required")
	}
	if o.Config == nil {
		return nil, errors.New("hub: Config is required")
	}
	if o.Name == "" {
		o.Name = defaultHubName
	}
	if namespace, name, ok := strings.Cut(o.Name, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("hub: Name %q is not <namespace>/<name>", o.Name)
	}
	o.Config = rest.CopyConfig(o.Config)
	if o.Config.Transport != nil || o.Config.WrapTransport != nil || o.Config.Dial != nil {
		return nil, errors.New("hub: Config has a transport or dialer of its own")
	}
	server, _, err := rest.DefaultServerUrlFor(o.Config)
	if err != nil {
		return nil, errors.New("hub: Config.Host is not a URL or host") // the error repeats it
	}
	return &hub{HubOptions: o, server: server.String()}, nil
}

// Run implements Source.
func (h *hub) Run(ctx context.Context, set func(clusterinformers.View)) error {
	l := &kubeconfigSource{network: h.Network, log: h.Logger, load: h.load}
	return l.run(ctx, func(view clusterinformers.View) {
		for i := range view.Members {
			view.Members[i].ReadOnly = true
		}
		set(view)
	})
}

// load writes the configuration down as a kubeconfig without files. What the rules
// for kubeconfigs of a hub refuse is kept, for the check to see.
func (h *hub) load() loadResult {
	var out loadResult
	m := credentials{name: h.Name}
	m.kubeconfig, m.refused = h.kubeconfig(&out.files)
	out.members = []credentials{m}
	return out
}

func (h *hub) kubeconfig(files *[]string) ([]byte, *connection.Refusal) {
	c := rest.CopyConfig(h.Config)
	if c.Proxy != nil {
		return nil, connection.Refuse(connection.ProxyURL, "the hub's configuration has a proxy")
	}
	token := []byte(c.BearerToken)
	for _, f := range []struct {
		field    string
		path     *string
		contents *[]byte
	}{
		{"certificate authority", &c.CAFile, &c.CAData},
		{"client certificate", &c.CertFile, &c.CertData},
		{"client key", &c.KeyFile, &c.KeyData},
		{"token", &c.BearerTokenFile, &token},
	} {
		if err := inlineFile(f.path, f.contents, files); err != nil {
			return nil, connection.Refuse(connection.FilePath, "%s: %v", f.field, err)
		}
	}
	const name = "hub"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: h.server, TLSServerName: c.ServerName, InsecureSkipTLSVerify: c.Insecure, CertificateAuthorityData: c.CAData,
	}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: string(bytes.TrimSpace(token)),
		Username: c.Username, Password: c.Password, Exec: c.ExecProvider, AuthProvider: c.AuthProvider,
		Impersonate: c.Impersonate.UserName, ImpersonateUID: c.Impersonate.UID,
		ImpersonateGroups: c.Impersonate.Groups, ImpersonateUserExtra: c.Impersonate.Extra,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "the hub's configuration cannot be written as a kubeconfig")
	}
	return data, nil
}
