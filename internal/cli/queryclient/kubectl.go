package queryclient

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// kubectlFlags are those of kubectl that replace what a context says. Impersonation is not among them: the query API
// refuses it.
var kubectlFlags = []struct {
	name, usage string
	set         func(*clientcmd.ConfigOverrides, string)
}{
	{"cluster", "`name` of the kubeconfig's cluster", func(o *clientcmd.ConfigOverrides, v string) { o.Context.Cluster = v }},
	{"user", "`name` of the kubeconfig's user", func(o *clientcmd.ConfigOverrides, v string) { o.Context.AuthInfo = v }},
	{"server", "`address` of the query API, with /fleet", func(o *clientcmd.ConfigOverrides, v string) { o.ClusterInfo.Server = v }},
	{"certificate-authority", "`file` with the CA of the server", func(o *clientcmd.ConfigOverrides, v string) { o.ClusterInfo.CertificateAuthority = v }},
	{"tls-server-name", "`name` that the server's certificate is to have", func(o *clientcmd.ConfigOverrides, v string) { o.ClusterInfo.TLSServerName = v }},
	{"client-certificate", "`file` with a client certificate", func(o *clientcmd.ConfigOverrides, v string) { o.AuthInfo.ClientCertificate = v }},
	{"client-key", "`file` with its key", func(o *clientcmd.ConfigOverrides, v string) { o.AuthInfo.ClientKey = v }},
	{"token", "bearer `token`", func(o *clientcmd.ConfigOverrides, v string) { o.AuthInfo.Token = v }},
	{"request-timeout", "how long one `request` may take, such as 30s; 0 is no limit", func(o *clientcmd.ConfigOverrides, v string) { o.Timeout = v }},
}

const insecure = "insecure-skip-tls-verify"

// RegisterKubectl registers flags that kubectl has for all of its commands, and commands that ask the query API heed.
func RegisterKubectl(fs *pflag.FlagSet) {
	for _, f := range kubectlFlags {
		fs.String(f.name, "", f.usage)
	}
	fs.Bool(insecure, false, "do not verify the server's certificate")
}

// overrides are what such flags replace.
func (f *Flags) overrides() (*clientcmd.ConfigOverrides, error) {
	o := &clientcmd.ConfigOverrides{}
	if f.cmd == nil {
		return o, nil
	}
	inherited := f.cmd.InheritedFlags()
	for _, k := range kubectlFlags {
		if given := inherited.Lookup(k.name); given != nil && given.Changed {
			k.set(o, given.Value.String())
		}
	}
	if o.Timeout != "" {
		if _, err := clientcmd.ParseTimeout(o.Timeout); err != nil {
			return nil, fmt.Errorf("--request-timeout: %w", err)
		}
	}
	if inherited.Lookup(insecure) != nil {
		skip, err := inherited.GetBool(insecure)
		if err != nil {
			return nil, err
		}
		o.ClusterInfo.InsecureSkipTLSVerify = skip
	}
	return o, nil
}
