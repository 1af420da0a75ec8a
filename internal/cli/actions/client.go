package actions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
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
	return &hubClient{client}, nil
}

// hubClient is a client of the hub.
type hubClient struct{ kubernetes.Interface }

// objects is a request for federator's objects.
func (c *hubClient) objects(verb, resource string, path ...string) *rest.Request {
	gv := v1alpha1.SchemeGroupVersion()
	return c.CoreV1().RESTClient().Verb(verb).AbsPath(append([]string{"apis", gv.Group, gv.Version, resource}, path...)...).
		SetHeader("Accept", "application/json")
}

// do sends a request and decodes its answer.
func do(ctx context.Context, r *rest.Request, into any) error {
	result := r.Do(ctx)
	if err := result.Error(); err != nil {
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// action returns an Action.
func (c *hubClient) action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	a := &v1alpha1.Action{}
	if err := do(ctx, c.objects("GET", v1alpha1.Actions, name), a); err != nil {
		return nil, c.explain(err, "action", name)
	}
	return a, nil
}

// policy returns a FleetPolicy.
func (c *hubClient) policy(ctx context.Context, name string) (*v1alpha1.FleetPolicy, error) {
	fp := &v1alpha1.FleetPolicy{}
	if err := do(ctx, c.objects("GET", v1alpha1.FleetPolicies, name), fp); err != nil {
		return nil, c.explain(err, "FleetPolicy", name)
	}
	return fp, nil
}

// explain tells the two meanings of a 404 apart: no object, or no CRD.
func (c *hubClient) explain(err error, kind, name string) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != "" {
		return fmt.Errorf("%s %q not found", kind, name)
	}
	return fmt.Errorf("%s %q: the hub does not serve %s; is this the kubeconfig of the hub?", kind, name, v1alpha1.GroupVersion)
}

// me is the caller's name on the hub, for managedFields.
func (c *hubClient) me(ctx context.Context) string {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	name := "federator-actions"
	if err == nil && review.Status.UserInfo.Username != "" {
		name = console.Printable(review.Status.UserInfo.Username)
	}
	return strings.ToValidUTF8(name[:min(len(name), 128)], "") // bytes, as the API server counts
}
