package source

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// ClusterProfilesOptions is a source of members that are ClusterProfiles of the Cluster Inventory
// API. A profile lists access providers; those that ProvidersFile names are programs that log in,
// and the first of them that a profile lists is run for it. All but Namespaces are required.
type ClusterProfilesOptions struct {
	Config     *rest.Config
	Namespaces []string // to look in; none means all
	// ProvidersFile is JSON as package access of the Cluster Inventory API reads it: providers with
	// name, execConfig and what profiles may add to it. It is read again when it changes.
	ProvidersFile string
	// ProfileEnv are the environment variables that profiles may set, where a provider's policy lets
	// them add any: a variable can decide what runs.
	ProfileEnv []string
	// PluginRunner is the command line that the programs are run by: theirs is appended. It must
	// end them, as nothing else does.
	PluginRunner []string
	Logger       *slog.Logger
}

const clusterProfileKind = "ClusterProfile"

// NewClusterProfiles returns the source, or what is wrong with the options.
func NewClusterProfiles(o ClusterProfilesOptions) (clusterinformers.Source, error) {
	const source = "ClusterProfiles"
	if len(o.PluginRunner) == 0 {
		return nil, errors.New(source + ": PluginRunner is required")
	}
	for _, name := range o.ProfileEnv {
		if !envName.MatchString(name) {
			return nil, fmt.Errorf("%s: ProfileEnv: %q is not the name of an environment variable", source, name)
		}
	}
	providers, err := readProviders(o.ProvidersFile)
	if err != nil {
		return nil, fmt.Errorf("%s: ProvidersFile: %w", source, err)
	}
	p := &accessProviders{file: o.ProvidersFile, env: slices.Clone(o.ProfileEnv), runner: slices.Clone(o.PluginRunner), log: o.Logger, providers: providers}
	return newHubObjects(hubOptions{o.Config, o.Namespaces, o.Logger}, memberObjects{
		source: source, versions: []schema.GroupVersion{inventoryv1alpha1.GroupVersion}, resource: "clusterprofiles", kind: clusterProfileKind,
		trim:  func(u *unstructured.Unstructured) description { return trimClusterProfile(u, p) },
		files: []string{o.ProvidersFile}, reload: p.reload,
	})
}

// accessProviders are the programs that our configuration names.
type accessProviders struct {
	file   string
	runner []string
	env    []string // that profiles may set
	log    *slog.Logger

	providers []access.Provider
}

// reload reads the providers again. Those that were read hold while the file is wrong.
func (p *accessProviders) reload() {
	providers, err := readProviders(p.file)
	if err != nil {
		p.log.Warn("access providers cannot be read: those read before are used", "file", p.file, "error", err)
		return
	}
	p.providers = providers
}

func readProviders(file string) ([]access.Provider, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	var config access.Config
	if err := decodeJSON(data, &config, true); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	names := map[string]bool{}
	for i, p := range config.Providers {
		at := fmt.Sprintf("%s: providers[%d]", file, i)
		switch {
		case p.Name == "":
			return nil, fmt.Errorf("%s.name is required", at)
		case names[p.Name]:
			return nil, fmt.Errorf("%s.name: another provider is named %q", at, p.Name)
		case p.ExecConfig == nil || p.ExecConfig.Command == "":
			return nil, fmt.Errorf("%s.execConfig.command is required", at)
		case p.ExecConfig.APIVersion == "":
			return nil, fmt.Errorf("%s.execConfig.apiVersion is required, such as client.authentication.k8s.io/v1", at)
		case !p.ExecConfig.ProvideClusterInfo:
			// Without it all clusters of a provider are logged in to as one, by one program at a time, and
			// the program cannot tell which server is to be sent its credentials.
			return nil, fmt.Errorf("%s.execConfig.provideClusterInfo must be true: what the program gives is for the cluster that it is told of", at)
		case !slices.Contains([]access.ProfileSourcedCLIArgsPolicy{"", access.ProfileSourcedCLIArgsPolicyIgnore, access.ProfileSourcedCLIArgsPolicyAppend}, p.ProfileSourcedCLIArgsPolicy):
			return nil, fmt.Errorf("%s.profileSourcedCLIArgsPolicy: %q is not Ignore or Append", at, p.ProfileSourcedCLIArgsPolicy)
		case !slices.Contains([]access.ProfileSourcedEnvVarsPolicy{"", access.ProfileSourcedEnvVarsPolicyIgnore, access.ProfileSourcedEnvVarsPolicyAppendIfNotExists, access.ProfileSourcedEnvVarsPolicyReplace}, p.ProfileSourcedEnvVarsPolicy):
			return nil, fmt.Errorf("%s.profileSourcedEnvVarsPolicy: %q is not Ignore, AppendIfNotExists or Replace", at, p.ProfileSourcedEnvVarsPolicy)
		}
		names[p.Name] = true
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: providers: at least one is required", file)
	}
	return config.Providers, nil
}

// clusterProfile is what is kept of a ClusterProfile.
type clusterProfile struct {
	hubObject

	access *accessProviders
	listed []inventoryv1alpha1.AccessProvider
	err    error // it is not understood
}

func trimClusterProfile(u *unstructured.Unstructured, p *accessProviders) *clusterProfile {
	c := &clusterProfile{hubObject: hubObjectOf(u), access: p}
	var typed inventoryv1alpha1.ClusterProfile
	c.err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed)
	// Of two with one name the one under the newer field is meant.
	c.listed = slices.Concat(typed.Status.AccessProviders, typed.Status.CredentialProviders)
	c.facts.Version = strings.Clone(clip.Text(typed.Status.Version.Kubernetes, maxVersion))
	return c
}

// member implements description.
func (c *clusterProfile) member(secrets) described {
	s := c.spec(clusterProfileKind)
	if s.Refused != nil {
		return described{Spec: s}
	}
	if c.err != nil {
		refuse(&s, connection.InvalidKubeconfig, "the ClusterProfile is not understood: %v", c.err)
		return described{Spec: s}
	}
	provider, listed := c.provider()
	if provider == nil {
		refuse(&s, connection.NoKubeconfig, "the ClusterProfile lists no access provider that federator is configured with: %s", c.names())
		return described{Spec: s}
	}
	s.Credentials, s.Plugin = "access provider "+provider.Name, true
	s.Kubeconfig, s.Refused = c.access.kubeconfig(provider, listed)
	return described{Spec: s}
}

// provider returns the first of our providers that the profile lists, and what it says of it.
func (c *clusterProfile) provider() (*access.Provider, *inventoryv1alpha1.AccessProvider) {
	for i := range c.access.providers {
		for j := range c.listed {
			if c.listed[j].Name == c.access.providers[i].Name {
				return &c.access.providers[i], &c.listed[j]
			}
		}
	}
	return nil, nil
}

func (c *clusterProfile) names() string {
	if len(c.listed) == 0 {
		return "it lists none"
	}
	names := make([]string, 0, len(c.listed))
	for _, a := range c.listed {
		names = append(names, fmt.Sprintf("%q", message.Clip(a.Name)))
	}
	slices.Sort(names)
	return "it lists " + strings.Join(slices.Compact(names), ", ")
}

// The extensions by which a profile adds to what a program is run with (KEP 5339).
const (
	additionalArgs = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
	additionalEnvs = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"

	// execConfigExtension has what the program is told of the cluster, as
	// ExecCredential's spec.cluster.config.
	execConfigExtension = "client.authentication.k8s.io/exec"
)

// kubeconfig writes down how a cluster is reached that a profile lists a provider for.
func (p *accessProviders) kubeconfig(provider *access.Provider, listed *inventoryv1alpha1.AccessProvider) ([]byte, *connection.Refusal) {
	if refused := checkExtensions(provider, listed); refused != nil {
		return nil, refused
	}
	// What the library is given it writes to.
	own := *provider
	own.ExecConfig = provider.ExecConfig.DeepCopy()
	built, err := access.New([]access.Provider{own}).BuildConfigFromCP(&inventoryv1alpha1.ClusterProfile{
		Status: inventoryv1alpha1.ClusterProfileStatus{AccessProviders: []inventoryv1alpha1.AccessProvider{*listed.DeepCopy()}},
	})
	if err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "%v", err)
	}
	plugin := built.ExecProvider
	if refused := p.checkEnv(provider.ExecConfig.Env, plugin.Env); refused != nil {
		return nil, refused
	}
	plugin.Args = slices.Concat(p.runner[1:], []string{plugin.Command}, plugin.Args)
	plugin.Command = p.runner[0]
	slices.SortFunc(plugin.Env, func(a, b clientcmdapi.ExecEnvVar) int { return strings.Compare(a.Name, b.Name) }) // the library's order is random
	cluster := clientcmdapi.NewCluster()
	if err := clientcmdlatest.Scheme.Convert(&listed.Cluster, cluster, nil); err != nil {
		return nil, connection.Refuse(connection.InvalidKubeconfig, "the cluster of access provider %q is not understood", message.Clip(listed.Name))
	}
	extension := cluster.Extensions[execConfigExtension]
	cluster.Extensions = nil
	if extension != nil {
		cluster.Extensions = map[string]runtime.Object{execConfigExtension: extension}
	}
	return writeKubeconfig(cluster, &clientcmdapi.AuthInfo{Exec: plugin})
}

// maxExtension bounds each extension of a profile, in bytes: client-go keeps for good what it has
// logged in with.
const maxExtension = 4 << 10

// checkExtensions checks what a profile adds, where it may: the library writes to a map that null
// makes nil.
func checkExtensions(provider *access.Provider, listed *inventoryv1alpha1.AccessProvider) *connection.Refusal {
	for _, e := range listed.Cluster.Extensions {
		var err error
		switch {
		case e.Name == additionalArgs && provider.ProfileSourcedCLIArgsPolicy == access.ProfileSourcedCLIArgsPolicyAppend:
			var args []string
			err = decodeJSON(e.Extension.Raw, &args, true)
		case e.Name == additionalEnvs && provider.ProfileSourcedEnvVarsPolicy != "" && provider.ProfileSourcedEnvVarsPolicy != access.ProfileSourcedEnvVarsPolicyIgnore:
			envs := map[string]string(nil)
			if err = decodeJSON(e.Extension.Raw, &envs, true); err == nil && envs == nil {
				err = errors.New("it is null")
			}
		case e.Name != execConfigExtension:
			continue // nobody looks at it
		}
		if err == nil && len(e.Extension.Raw) > maxExtension {
			err = fmt.Errorf("it has %d bytes, more than %d", len(e.Extension.Raw), maxExtension)
		}
		if err != nil {
			return connection.Refuse(connection.InvalidKubeconfig, "extension %s of the cluster: %v", e.Name, err)
		}
	}
	return nil
}

// envName is what an environment variable is called. One with = in its name would set another.
var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkEnv refuses variables of a profile that we have not named: too many decide what code runs.
func (p *accessProviders) checkEnv(ours, all []clientcmdapi.ExecEnvVar) *connection.Refusal {
	for _, v := range all {
		if !slices.Contains(ours, v) && !slices.Contains(p.env, v.Name) {
			return connection.Refuse(connection.ExecPlugin, "the ClusterProfile sets environment variable %q, which sources.clusterProfiles.profileEnv does not name", message.Clip(v.Name))
		}
	}
	return nil
}
