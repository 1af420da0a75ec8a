package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
)

const kubeconfigHelp = `Write a kubeconfig for the query API: the context "fleet" over all members, and
one per member that may be read, called <namespace>/<name>.

With --service-account the hub issues a token for it that only federator
accepts (its audience is "federator"), good for --duration:

  federator kubeconfig --server https://federator.example.com:8443 \
    --certificate-authority ca.pem --service-account teams/ann > fleet.yaml
  kubectl --kubeconfig fleet.yaml get pods -A

Without flags the server on this machine that runs without a hub is meant.`

// kubeconfigFlags say how to reach the query API, and as whom.
type kubeconfigFlags struct {
	server    string
	ca        string
	hub       string
	account   string
	audience  string
	tokenFile string
	duration  time.Duration
	output    string
}

func newKubeconfigCommand() *cobra.Command {
	var f kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Write a kubeconfig for the fleet and each of its members",
		Long:  kubeconfigHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := f.build(cmd.Context())
			if err != nil {
				return err
			}
			if f.output != "" {
				return writeSecret(f.output, *config)
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
	fs.StringVar(&f.ca, "certificate-authority", "", "`file` with the authority of the server's certificate (default the system's)")
	fs.StringVar(&f.hub, "hub-kubeconfig", "", "`file` with credentials for the hub (default KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&f.account, "service-account", "", "`namespace/name` of the ServiceAccount of the hub to ask as")
	fs.StringVar(&f.tokenFile, "token-file", "", "`file` with a token to use instead")
	fs.StringVar(&f.audience, "audience", "federator", "`audience` that the token is for")
	fs.DurationVar(&f.duration, "duration", time.Hour, "how long the token is good for")
	fs.StringVarP(&f.output, "output", "o", "", "`file` to write (default standard output)")
	return cmd
}

// build makes the kubeconfig, with the members that the user may see.
func (f *kubeconfigFlags) build(ctx context.Context) (*clientcmdapi.Config, error) {
	config, err := f.access(ctx)
	if err != nil {
		return nil, err
	}
	a, err := newAsker(rest.CopyConfig(config))
	if err != nil {
		return nil, err
	}
	members, err := a.members(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.root, err)
	}
	out := clientcmdapi.NewConfig()
	out.AuthInfos[localContext] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	out.CurrentContext = localContext
	add := func(name, path string) {
		out.Clusters[name] = &clientcmdapi.Cluster{Server: a.root + path, CertificateAuthorityData: config.CAData, DisableCompression: config.DisableCompression}
		out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: localContext}
	}
	add(localContext, "/fleet")
	for _, m := range members {
		add(m, "/members/"+m)
	}
	return out, nil
}

// access finds out where the query API is and gets a token for it.
func (f *kubeconfigFlags) access(ctx context.Context) (*rest.Config, error) {
	if f.server == "" {
		if f.account != "" || f.tokenFile != "" || f.ca != "" {
			return nil, errors.New("--server is missing: where the query API is")
		}
		return localAccess()
	}
	config := &rest.Config{Host: strings.TrimSuffix(f.server, "/")}
	if !strings.HasPrefix(config.Host, "https://") {
		return nil, fmt.Errorf("--server: %q does not begin with https://", f.server)
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--certificate-authority: %w", err)
		}
		config.CAData = pem
	}
	var err error
	switch {
	case f.account != "" && f.tokenFile != "":
		return nil, errors.New("--service-account and --token-file exclude each other")
	case f.tokenFile != "":
		var token []byte
		if token, err = os.ReadFile(filepath.Clean(f.tokenFile)); err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		config.BearerToken = strings.TrimSpace(string(token))
	case f.account != "":
		config.BearerToken, err = f.issue(ctx)
	default:
		err = errors.New("--service-account or --token-file is missing: as whom the fleet is read")
	}
	return config, err
}

// localAccess is how to reach a server on this machine or, without one, what the
// context fleet leads to.
func localAccess() (*rest.Config, error) {
	path, err := localKubeconfig("")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err == nil {
		return clientcmd.BuildConfigFromFlags("", path)
	}
	config, err := (&askFlags{}).config()
	if err != nil {
		return nil, fmt.Errorf("%w, or give --server", err)
	}
	return config, nil
}

// issue asks the hub for a token that only federator accepts.
func (f *kubeconfigFlags) issue(ctx context.Context) (string, error) {
	namespace, name, ok := strings.Cut(f.account, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("--service-account: %q is not of the form <namespace>/<name>", f.account)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.hub
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	hub, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
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

// members returns the names of the members that the caller may see.
func (a *asker) members(ctx context.Context) ([]string, error) {
	body, err := a.get(ctx, "/query/v1/members", nil, "application/json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(answer.Items))
	for _, m := range answer.Items {
		names = append(names, m.Name)
	}
	return names, nil
}

// writeSecret writes a kubeconfig for its owner's eyes only, whatever the file
// was before.
func writeSecret(path string, config clientcmdapi.Config) error {
	if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return clientcmd.WriteToFile(config, path) // makes it with mode 0600
}
