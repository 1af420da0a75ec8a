package kubeconfig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/kubeconfigfile"
)

const help = `Write a kubeconfig for the query API: the context "fleet" over all members, "flat"
over the same with unique keys, and one per readable member, named
<namespace>/<name>.

"fleet" is for kubectl and federator's own commands: names are those in the members,
and a column shows the member. "flat" is for programs that key objects by namespace
and name, such as k9s, Headlamp, Lens, informers and controllers: there a namespace,
and the name of a cluster-scoped object, is
<cluster namespace>.<cluster name>.<its own>, with _ for dots of a cluster's name.

With --service-account the hub issues a token that only federator accepts (its
audience is "federator"), valid for --duration:

  federator kubeconfig --server https://federator.example.com:8443 \
    --service-account teams/ann > fleet.yaml
  kubectl --kubeconfig fleet.yaml get pods -A

Without --certificate-authority the server's certificate is verified with the system's
CAs, else with ca.crt of a Secret that the chart created on the hub (type
kubernetes.io/tls, label app.kubernetes.io/part-of=federator; in --namespace, else in
any), else with the CA that a server on this machine generated. The first that verifies
certificate and name is written, and named on standard error: anyone who may create such
Secrets on the hub, in these namespaces, can vouch for a server. No token is sent before
the server is verified.

Without flags the kubeconfig is for the local server that runs without a hub.`

// flags say how to reach the query API, and as whom.
type flags struct {
	server    string
	ca        string
	hub       string
	namespace string
	account   string
	audience  string
	tokenFile string
	duration  time.Duration
	output    string

	version string // of federator
}

func Command(version string) *cobra.Command {
	f := flags{version: version}
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write a kubeconfig for the fleet and each of its members",
		Long:  help,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := f.build(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.output != "" {
				return kubeconfigfile.Write(f.output, *config)
			}
			out, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.server, "server", "", "`URL` of the query API")
	fs.StringVar(&f.ca, "certificate-authority", "", "`file` with the CA of the server's certificate (default the first that verifies it: the system's, that of the chart's Secret, that of a local server)")
	fs.StringVar(&f.hub, "hub-kubeconfig", "", "`file` with credentials for the hub (default KUBECONFIG, else ~/.kube/config)")
	fs.StringVarP(&f.namespace, "namespace", "n", "", "`namespace` of federator on the hub, to find the Secret with its CA (default all)")
	fs.StringVar(&f.account, "service-account", "", "`namespace/name` of the ServiceAccount of the hub to authenticate as")
	fs.StringVar(&f.tokenFile, "token-file", "", "`file` with a token to use instead")
	fs.StringVar(&f.audience, "audience", "federator", "`audience` that the token is for")
	fs.DurationVar(&f.duration, "duration", time.Hour, "how long the token is valid")
	fs.StringVarP(&f.output, "output", "o", "", "`file` to write (default standard output)")
	return cmd
}

// build makes the kubeconfig, with the members that the user may read. It reports which CA
// it has found.
func (f *flags) build(ctx context.Context, messages io.Writer) (*clientcmdapi.Config, error) {
	config, err := f.access(ctx, messages)
	if err != nil {
		return nil, err
	}
	a, err := queryclient.New(rest.CopyConfig(config), f.version)
	if err != nil {
		return nil, err
	}
	members, err := a.Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Root, err)
	}
	out := clientcmdapi.NewConfig()
	out.AuthInfos[kubeconfigfile.FleetContext] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	out.CurrentContext = kubeconfigfile.FleetContext
	add := func(name, path string) {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: a.Root + path, CertificateAuthorityData: config.CAData, DisableCompression: config.DisableCompression}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: kubeconfigfile.FleetContext}
	}
	add(kubeconfigfile.FleetContext, "/fleet")
	add(kubeconfigfile.FlatContext, "/flat")
	for _, m := range members {
		add(m, "/members/"+m)
	}
	return out, nil
}

// access returns how to reach the query API, with a token.
func (f *flags) access(ctx context.Context, messages io.Writer) (*rest.Config, error) {
	if f.server == "" {
		if f.account != "" || f.tokenFile != "" || f.ca != "" || f.namespace != "" {
			return nil, errors.New("--server is required: the URL of the query API")
		}
		return localAccess()
	}
	config := &rest.Config{Host: strings.TrimSuffix(f.server, "/")}
	switch {
	case !strings.HasPrefix(config.Host, "https://"):
		return nil, fmt.Errorf("--server: %q does not begin with https://", f.server)
	case f.account != "" && f.tokenFile != "":
		return nil, errors.New("--service-account and --token-file are mutually exclusive")
	case f.account == "" && f.tokenFile == "":
		return nil, errors.New("--service-account or --token-file is required")
	}
	var err error
	if config.CAData, err = f.authority(ctx, messages); err != nil {
		return nil, err
	}
	if f.tokenFile != "" {
		token, err := os.ReadFile(filepath.Clean(f.tokenFile))
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		config.BearerToken = strings.TrimSpace(string(token))
		return config, nil
	}
	config.BearerToken, err = f.issue(ctx)
	return config, err
}

// authority returns the certificates (PEM) that verify the server's; nil are the system's.
func (f *flags) authority(ctx context.Context, messages io.Writer) ([]byte, error) {
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--certificate-authority: %w", err)
		}
		return pem, nil
	}
	found, err := f.findAuthority(ctx)
	if err == nil && found.pem != nil {
		_, err = fmt.Fprintf(messages, "The certificate of %s is verified by %s.\n", f.server, found.where)
	}
	return found.pem, err
}

// localAccess is how to reach a server on this machine or, without one, what the
// context fleet leads to.
func localAccess() (*rest.Config, error) {
	path, err := kubeconfigfile.Path("")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err == nil {
		return clientcmd.BuildConfigFromFlags("", path)
	}
	config, err := (&queryclient.Flags{}).RESTConfig()
	if err != nil {
		return nil, fmt.Errorf("%w, or give --server", err)
	}
	return config, nil
}

// issue requests a token from the hub that only federator accepts.
func (f *flags) issue(ctx context.Context) (string, error) {
	namespace, name, ok := strings.Cut(f.account, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("--service-account: %q is not of the form <namespace>/<name>", f.account)
	}
	hub, err := f.hubClient()
	if err != nil {
		return "", err
	}
	seconds := int64(f.duration.Seconds())
	review, err := hub.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: []string{f.audience}, ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of %s: %w", f.account, err)
	}
	return review.Status.Token, nil
}

// hubClient returns a client of the hub, as the user.
func (f *flags) hubClient() (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.hub
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return hub, nil
}
