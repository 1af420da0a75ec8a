package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// ContextsOptions is a source of members that are contexts of the operator's own
// kubeconfig. A member is called context/<name>, with a name that is safe for
// DNS. Files that the kubeconfig names are read, its exec plugins run, and
// insecure-skip-tls-verify is honoured, each with a warning: a person's own contexts
// are that person's. All else is checked by the rules for kubeconfigs of a hub. Names and
// Logger are required.
type ContextsOptions struct {
	Path  string   // of the kubeconfig; "" means KUBECONFIG, else ~/.kube/config
	Names []string // one "*": all that there are now, but those of federator's own API
	// PluginRunner is the command line that exec plugins are run by: theirs is
	// appended. It must end them, as nothing else does. None: they are refused.
	PluginRunner []string
	Network      connection.Network // as in Options; loopback addresses are allowed anyway
	Logger       *slog.Logger
}

// contextNamespace is the first half of the names of such members.
const contextNamespace = "context"

type contexts struct {
	ContextsOptions
	rules   *clientcmd.ClientConfigLoadingRules
	members []string // by index of Names
}

// NewContexts returns the source, or what is wrong with the options.
func NewContexts(o ContextsOptions) (clusterinformers.Source, error) {
	if o.Logger == nil {
		return nil, errors.New("contexts: Logger is required")
	}
	if len(o.Names) == 0 {
		return nil, errors.New("contexts: at least one of Names is required")
	}
	c := &contexts{ContextsOptions: o, rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	c.rules.MigrationRules = nil // they write
	c.rules.WarnIfAllMissing = false
	if o.Path != "" {
		c.rules.ExplicitPath = o.Path
	}
	if slices.Equal(o.Names, []string{"*"}) {
		var err error
		if c.Names, err = c.all(); err != nil {
			return nil, err
		}
	}
	taken := map[string]string{}
	for _, name := range c.Names {
		s := dnsLabel(name)
		if s == "" {
			return nil, fmt.Errorf("contexts: context %q contains no letter or digit, so no member name can be derived", name)
		}
		if other, ok := taken[s]; ok {
			return nil, fmt.Errorf("contexts: contexts %q and %q map to the same member name %s/%s", other, name, contextNamespace, s)
		}
		taken[s] = name
		c.members = append(c.members, contextNamespace+"/"+s)
	}
	return c, nil
}

// Run implements Source.
func (c *contexts) Run(ctx context.Context, set func(clusterinformers.View)) error {
	l := &kubeconfigSource{network: c.Network, log: c.Logger, load: c.load, own: true}
	return l.run(ctx, set)
}

// load reads the kubeconfig and makes each context one that stands alone.
func (c *contexts) load() loadResult {
	out := loadResult{files: c.rules.GetLoadingPrecedence()}
	config, err := c.rules.Load()
	for i, name := range c.Names {
		m := credentials{name: c.members[i]}
		if err != nil { // which may quote the file
			m.refused = connection.Refuse(connection.InvalidKubeconfig, "the kubeconfig cannot be read: %s", c.paths())
		} else {
			m.kubeconfig, m.warnings, m.refused = c.standalone(config, name, &out.files)
			if m.refused != nil && m.refused.Reason == connection.InvalidKubeconfig {
				m.refused.Message += ": " + c.paths()
			}
		}
		out.members = append(out.members, m)
	}
	return out
}

func (c *contexts) paths() string { return strings.Join(c.rules.GetLoadingPrecedence(), ", ") }

// all returns the names of the contexts that there are.
func (c *contexts) all() ([]string, error) {
	config, err := c.rules.Load()
	if err != nil { // which may quote the file
		return nil, fmt.Errorf("contexts: the kubeconfig cannot be read: %s", c.paths())
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if cluster := config.Clusters[config.Contexts[name].Cluster]; cluster == nil || !servedByFederator(cluster.Server) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("contexts: no contexts in %s", c.paths())
	}
	return names, nil
}

// servedByFederator reports whether a server is one of federator's own, which would have it
// read itself.
func servedByFederator(server string) bool {
	u, err := url.Parse(server)
	return err == nil && (u.Path == "/fleet" || u.Path == "/flat" || strings.HasPrefix(u.Path, "/members/"))
}

// standalone returns a kubeconfig with one context and no files, and what of it is
// worth a warning. The files that it read are added to files.
func (c *contexts) standalone(config *clientcmdapi.Config, name string, files *[]string) (data []byte, warnings []string, refused *connection.Refusal) {
	data, refused = c.inlineContext(config, name, files, &warnings)
	return data, warnings, refused
}

func (c *contexts) inlineContext(config *clientcmdapi.Config, name string, files, warnings *[]string) ([]byte, *connection.Refusal) {
	warn := func(format string, args ...any) {
		*warnings = append(*warnings, message.Clip(fmt.Sprintf(format, args...)))
	}
	// Only what is left is copied: a copy of all for each context would be quadratic.
	rest := *config
	rest.CurrentContext, rest.Extensions, rest.Preferences = name, nil, clientcmdapi.Preferences{}
	if err := clientcmdapi.MinifyConfig(&rest); err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "context %q does not exist or is incomplete", message.Clip(name))
	}
	one := rest.DeepCopy()
	file := func(field string, path *string, contents *[]byte) *connection.Refusal {
		named := *path
		if err := inlineFile(path, contents, files); err != nil {
			return connection.Refuse(connection.FilePath, "%s: %v", field, err)
		}
		if named != "" {
			warn("%s is read from file %q", field, named)
		}
		return nil
	}
	for _, cluster := range one.Clusters {
		if cluster.InsecureSkipTLSVerify {
			warn("cluster.insecure-skip-tls-verify is set: anyone in between can read and change everything, credentials included")
		}
		if refused := file("cluster.certificate-authority", &cluster.CertificateAuthority, &cluster.CertificateAuthorityData); refused != nil {
			return nil, refused
		}
	}
	for _, user := range one.AuthInfos {
		if plugin := user.Exec; plugin != nil {
			if len(c.PluginRunner) == 0 {
				return nil, connection.Refuse(connection.ExecPlugin, "user.exec runs a command, here %q, and exec plugins are disabled", message.Clip(plugin.Command))
			}
			warn("user.exec runs %q to log in, as kubectl does; --no-exec refuses it", message.Clip(plugin.Command))
			plugin.Args = slices.Concat(c.PluginRunner[1:], []string{plugin.Command}, plugin.Args)
			plugin.Command = c.PluginRunner[0]
		}
		if refused := file("user.client-certificate", &user.ClientCertificate, &user.ClientCertificateData); refused != nil {
			return nil, refused
		}
		if refused := file("user.client-key", &user.ClientKey, &user.ClientKeyData); refused != nil {
			return nil, refused
		}
		token := []byte(user.Token)
		if refused := file("user.tokenFile", &user.TokenFile, &token); refused != nil {
			return nil, refused
		}
		user.Token = string(bytes.TrimSpace(token))
	}
	data, err := clientcmd.Write(*one)
	if err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "context %q cannot be written as a kubeconfig", message.Clip(name))
	}
	return data, nil
}

// dnsLabel makes a DNS label of a context's name: lower case, with one - for every
// run of other characters.
func dnsLabel(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 63 {
			break
		}
	}
	return strings.Trim(b.String(), "-")
}
