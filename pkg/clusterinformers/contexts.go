package clusterinformers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Contexts is a source of members that are contexts of the operator's own
// kubeconfig. A member is called context/<name>, with a name that is safe for
// DNS. Files that the kubeconfig names are read; plugins are refused like
// everything else that law 9 refuses. Names and Logger are required.
type Contexts struct {
	Path    string // of the kubeconfig; "" means KUBECONFIG, else ~/.kube/config
	Names   []string
	Network Network // as in Options; loopback addresses are allowed anyway
	Logger  *slog.Logger
}

// contextNamespace is the first half of the names of such members.
const contextNamespace = "context"

type contexts struct {
	Contexts
	rules   *clientcmd.ClientConfigLoadingRules
	members []string // by index of Names
}

// NewContexts returns the source, or what is wrong with the options.
func NewContexts(o Contexts) (Source, error) {
	if o.Logger == nil {
		return nil, errors.New("contexts: Logger is required")
	}
	if len(o.Names) == 0 {
		return nil, errors.New("contexts: at least one of Names is required")
	}
	c := &contexts{Contexts: o, rules: clientcmd.NewDefaultClientConfigLoadingRules()}
	c.rules.MigrationRules = nil // they write
	c.rules.WarnIfAllMissing = false
	if o.Path != "" {
		c.rules.ExplicitPath = o.Path
	}
	taken := map[string]string{}
	for _, name := range o.Names {
		s := slug(name)
		if s == "" {
			return nil, fmt.Errorf("contexts: context %q has no letter or digit to name a member by", name)
		}
		if other, ok := taken[s]; ok {
			return nil, fmt.Errorf("contexts: contexts %q and %q are both member %s/%s", other, name, contextNamespace, s)
		}
		taken[s] = name
		c.members = append(c.members, contextNamespace+"/"+s)
	}
	return c, nil
}

// Run implements Source.
func (c *contexts) Run(ctx context.Context, set func([]Spec)) error {
	l := &local{network: c.Network, log: c.Logger, load: c.load}
	return l.run(ctx, set)
}

// load reads the kubeconfig and makes each context one that stands alone.
func (c *contexts) load() loaded {
	out := loaded{files: c.rules.GetLoadingPrecedence()}
	config, err := c.rules.Load()
	for i, name := range c.Names {
		m := candidate{name: c.members[i]}
		if err != nil { // which may quote the file
			m.refused = refuse(InvalidKubeconfig, "the kubeconfig cannot be read: %s", c.where())
		} else {
			m.kubeconfig, m.refused = standalone(config, name, &out.files)
			if m.refused != nil && m.refused.Reason == InvalidKubeconfig {
				m.refused.Message += ": " + c.where()
			}
		}
		out.members = append(out.members, m)
	}
	return out
}

func (c *contexts) where() string { return strings.Join(c.rules.GetLoadingPrecedence(), ", ") }

// standalone returns a kubeconfig with one context and no files. The files that
// it read are added to files.
func standalone(config *clientcmdapi.Config, name string, files *[]string) ([]byte, *Refusal) {
	one := config.DeepCopy()
	one.CurrentContext = name
	if err := clientcmdapi.MinifyConfig(one); err != nil {
		return nil, refuse(InvalidKubeconfig, "context %q is not there or is incomplete", clip(name))
	}
	one.Extensions, one.Preferences = nil, clientcmdapi.Preferences{}
	for _, cluster := range one.Clusters {
		if err := inline(&cluster.CertificateAuthority, &cluster.CertificateAuthorityData, files); err != nil {
			return nil, refuse(FilePath, "cluster.certificate-authority: %v", err)
		}
	}
	for _, user := range one.AuthInfos {
		if err := inline(&user.ClientCertificate, &user.ClientCertificateData, files); err != nil {
			return nil, refuse(FilePath, "user.client-certificate: %v", err)
		}
		if err := inline(&user.ClientKey, &user.ClientKeyData, files); err != nil {
			return nil, refuse(FilePath, "user.client-key: %v", err)
		}
		token := []byte(user.Token)
		if err := inline(&user.TokenFile, &token, files); err != nil {
			return nil, refuse(FilePath, "user.tokenFile: %v", err)
		}
		user.Token = string(bytes.TrimSpace(token))
	}
	data, err := clientcmd.Write(*one)
	if err != nil {
		return nil, refuse(InvalidKubeconfig, "context %q cannot be written down", clip(name))
	}
	return data, nil
}

// slug makes a DNS label of a context's name: lower case, with one - for every
// run of other characters.
func slug(name string) string {
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
