// Package hubclient is how commands reach the hub: the flags for it, as kubectl has them, and
// the client that these give.
package hubclient

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
)

// Flags say how to reach the hub.
type Flags struct {
	Version string // of federator

	kubeconfig, context string
}

func (f *Flags) Register(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with credentials for the hub (default KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&f.context, "context", "", "`context` of the kubeconfig (default the current one)")
}

// Open returns a client of the hub.
func (f *Flags) Open() (hubrequests.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return hubrequests.Client{}, exit.BadInput(fmt.Errorf("hub kubeconfig: %w", err))
	}
	config.UserAgent = "federator/" + f.Version
	config.QPS = -1 // a person's requests are few
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return hubrequests.Client{}, exit.BadInput(fmt.Errorf("hub kubeconfig: %w", err))
	}
	return hubrequests.Client{Interface: client}, nil
}
