package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/config"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/agent"
)

const help = `Serve this cluster to a federator that cannot reach it.

The agent connects to each --hub, an address of agents.listen of a federator process,
and federator then reads the cluster, and corrects it, over these connections: nothing
is opened towards the cluster. What federator may do is what the agent's own credentials
may, of the ServiceAccount that it runs as or of --kubeconfig. It refuses what federator
does not need, such as exec, logs, tokens and impersonation.

The first time it needs a token, of federator agent token on the hub:

  federator agent --hub federator.example.com:9443 --token-file token

It then has a certificate, which it renews. That is kept, with its key, in a Secret of
the agent's own namespace, or in --state-dir; without either, the agent needs a new
token after a restart.`

// flags are those of an agent.
type flags struct {
	hubs       []string
	tokenFile  string
	kubeconfig string
	stateDir   string
	namespace  string
	secret     string
	ofToken    string // a Secret
	health     string // an address
	proxy      string // a URL
	requests   float64
	bytes      int64
	log        config.Log

	version string // of federator
}

// tokenVariable is of the environment.
const tokenVariable = "FEDERATOR_AGENT_TOKEN"

// proxyVariable is of the environment: the URL of a proxy may have a password.
const proxyVariable = "FEDERATOR_AGENT_PROXY"

// namespaceFile has the namespace that a pod is in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Command returns the command.
func Command(version string) *cobra.Command {
	f := flags{version: version}
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Serve this cluster to a federator that cannot reach it",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.hubs, "hub", nil, "`addresses` of federator, as host:port, one of each process")
	fs.StringVar(&f.tokenFile, "token-file", "", "`file` with a token to join with (default "+tokenVariable+" of the environment)")
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with credentials for this cluster (default in-cluster)")
	fs.StringVar(&f.stateDir, "state-dir", "", "`directory` that keeps certificate and key, instead of a Secret")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of the Secret that keeps them (default the pod's)")
	fs.StringVar(&f.secret, "secret", "federator-agent", "`name` of that Secret")
	fs.StringVar(&f.ofToken, "token-secret", "", "`name` of the Secret there that the token is of: federator is not shown it, as it is not shown --secret")
	fs.Float64Var(&f.requests, "max-requests-per-second", 50, "`requests` that federator may send to this API server in a second; more wait, and are refused after 5s. 0: unlimited")
	fs.Int64Var(&f.bytes, "max-bytes-per-second", 0, "`bytes` of objects that it may read in a second, before compression. 0: unlimited")
	fs.StringVar(&f.proxy, "proxy", "", "`URL` of the proxy (http, https or socks5) to federator (default "+proxyVariable+", or HTTPS_PROXY and NO_PROXY, of the environment)")
	fs.StringVar(&f.health, "health-listen", "", "`address` of /healthz and /readyz, which says whether the agent is connected (default none)")
	fs.StringVar(&f.log.Level, "log-level", "info", "debug, info, warn or error")
	fs.StringVar(&f.log.Format, "log-format", "text", "text or json")
	cmd.AddCommand(tokenCommand(version), rotateCommand(version))
	return cmd
}

func (f *flags) run(cmd *cobra.Command) error {
	log, err := config.NewLogger(cmd.ErrOrStderr(), f.log)
	if err != nil {
		return exit.BadInput(err)
	}
	token, err := f.token()
	if err != nil {
		return exit.BadInput(err)
	}
	cluster, err := f.cluster()
	if err != nil {
		return exit.BadInput(err)
	}
	store, err := f.store(cluster)
	if err != nil {
		return exit.BadInput(err)
	}
	hidden, err := f.hidden()
	if err != nil {
		return exit.BadInput(err)
	}
	proxy, err := f.proxyOf()
	if err != nil {
		return exit.BadInput(err)
	}
	a, err := agent.New(agent.Options{
		Hubs: f.hubs, Token: token, ReadToken: f.token, Cluster: cluster, Store: store, Hidden: hidden, Version: f.version,
		RequestsPerSecond: f.requests, BytesPerSecond: f.bytes, Proxy: proxy, Logger: log,
	})
	if err != nil {
		return exit.BadInput(err)
	}
	if f.health == "" {
		return a.Run(cmd.Context())
	}
	return serveHealth(cmd.Context(), f.health, a.Ready, log, a.Run)
}

// token returns the token to join with, "" where there is none. A file that is empty, or not there, is none: the Secret
// that it is of may be deleted once the agent has joined.
func (f *flags) token() (string, error) {
	if f.tokenFile == "" {
		return strings.TrimSpace(os.Getenv(tokenVariable)), nil
	}
	text, err := os.ReadFile(f.tokenFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// proxyOf returns which proxy is on the way to one of the hubs. One that is named is on the way to all of them.
func (f *flags) proxyOf() (func(hub string) (*url.URL, error), error) {
	text := cmp.Or(f.proxy, strings.TrimSpace(os.Getenv(proxyVariable)))
	if text != "" {
		u, err := parseProxy(text)
		if err != nil {
			return nil, fmt.Errorf("--proxy: %w", err)
		}
		return func(string) (*url.URL, error) { return u, nil }, nil
	}
	env := httpproxy.FromEnvironment()
	if text := env.HTTPSProxy; text != "" {
		if !strings.Contains(text, "://") {
			text = "http://" + text // as it does, which leaves out or guesses what else is no URL, and says nothing
		}
		if _, err := parseProxy(text); err != nil {
			return nil, fmt.Errorf("HTTPS_PROXY: %w", err)
		}
	}
	of := env.ProxyFunc()
	return func(hub string) (*url.URL, error) { return of(&url.URL{Scheme: "https", Host: hub}) }, nil
}

// parseProxy does not repeat in an error what it is given: a password may be in it.
func parseProxy(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	return u, agent.CheckProxy(u)
}

func (f *flags) cluster() (*rest.Config, error) {
	var c *rest.Config
	var err error
	if f.kubeconfig == "" {
		c, err = rest.InClusterConfig()
	} else {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig}
		c, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("credentials for this cluster (see --kubeconfig): %w", err)
	}
	return c, nil
}

func (f *flags) store(cluster *rest.Config) (agent.Store, error) {
	if f.stateDir != "" {
		return agent.InDirectory(f.stateDir), nil
	}
	namespace, err := f.ownNamespace()
	if err != nil {
		return nil, fmt.Errorf("where certificate and key are kept must be said with --state-dir or --namespace: %w", err)
	}
	client, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	return agent.InSecret(client, namespace, f.secret), nil
}

// ownNamespace returns the namespace of the agent's Secrets.
func (f *flags) ownNamespace() (string, error) {
	if f.namespace != "" {
		return f.namespace, nil
	}
	own, err := os.ReadFile(namespaceFile)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(own)), nil
}

// hidden returns what federator is not shown, beside the store.
func (f *flags) hidden() ([]types.NamespacedName, error) {
	if f.ofToken == "" {
		return nil, nil
	}
	namespace, err := f.ownNamespace()
	if err != nil {
		return nil, fmt.Errorf("--token-secret without --namespace: %w", err)
	}
	return []types.NamespacedName{{Namespace: namespace, Name: f.ofToken}}, nil
}
