package actions

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
)

// hubFlags say how to reach the hub, as kubectl's flags do.
type hubFlags struct {
	kubeconfig, context string

	version string // of federator
}

func (f *hubFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "", "`file` with credentials for the hub (default KUBECONFIG, else ~/.kube/config)")
	fs.StringVar(&f.context, "context", "", "`context` of the kubeconfig (default the current one)")
}

// open returns a client of the hub.
func (f *hubFlags) open() (*hubClient, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	if err != nil {
		return nil, exit.BadInput(fmt.Errorf("hub kubeconfig: %w", err))
	}
	config.UserAgent = "federator/" + f.version
	config.QPS = -1 // a person's requests are few
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, exit.BadInput(fmt.Errorf("hub kubeconfig: %w", err))
	}
	return &hubClient{hubrequests.Client{Interface: client}}, nil
}

// hubClient is a client of the hub.
type hubClient struct{ hubrequests.Client }
