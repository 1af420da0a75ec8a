package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/api/v1alpha1"
)

const actionsHelp = `See what federator has written to members, take it back, and stop it.

The hub is asked, as kubectl asks it: KUBECONFIG, else ~/.kube/config, or
--kubeconfig and --context. What you may do there, you may do here:

  list, show     get and list actions
  rollback       patch actions
  ack            get and patch fleetpolicies
  stop, resume   create, get and delete ConfigMap federator-stop

Without this command: kubectl get actions; kubectl label action NAME
federator.dev/rollback=true; kubectl create configmap federator-stop.`

func newActionsCommand() *cobra.Command {
	var f hubFlags
	cmd := &cobra.Command{
		Use:   "actions",
		Short: "See what was written to members, take it back, and stop it",
		Long:  actionsHelp,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd.PersistentFlags())
	cmd.AddCommand(
		newActionsListCommand(&f), newActionsShowCommand(&f), newActionsRollbackCommand(&f), newActionsAckCommand(&f),
		newActionsStopCommand(&f), newActionsResumeCommand(&f),
	)
	return cmd
}

// hubFlags say which hub is meant, as kubectl's flags do.
type hubFlags struct{ kubeconfig, context string }

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
		return nil, badInput(fmt.Errorf("the hub's kubeconfig: %w", err))
	}
	config.UserAgent = "federator/" + version()
	config.QPS = -1 // a person's requests are few
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, badInput(fmt.Errorf("the hub's kubeconfig: %w", err))
	}
	return &hubClient{client}, nil
}

// hubClient asks a hub.
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

// explain says what a 404 means: no object, or no federator.
func (c *hubClient) explain(err error, kind, name string) error {
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != "" {
		return fmt.Errorf("%s %q: there is none", kind, name)
	}
	return fmt.Errorf("%s %q: the hub does not serve %s; is this kubeconfig the hub's?", kind, name, v1alpha1.GroupVersion)
}

// me is who asks the hub, as managedFields are to tell it.
func (c *hubClient) me(ctx context.Context) string {
	review, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	name := "federator-actions"
	if err == nil && review.Status.UserInfo.Username != "" {
		name = printable(review.Status.UserInfo.Username)
	}
	return strings.ToValidUTF8(name[:min(len(name), 128)], "") // bytes, as the API server counts
}

// phaseNames are those of --phase.
var phaseNames = []v1alpha1.ActionPhase{
	v1alpha1.PhasePending, v1alpha1.PhaseDryRunPassed, v1alpha1.PhaseWriting, v1alpha1.PhaseSucceeded, v1alpha1.PhaseNoOp,
	v1alpha1.PhaseFailed, v1alpha1.PhaseSuperseded, v1alpha1.PhaseContended, v1alpha1.PhaseProtected, v1alpha1.PhaseRolledBack,
}

// phaseOf finds a phase, however it is written.
func phaseOf(s string) (v1alpha1.ActionPhase, error) {
	n := slices.IndexFunc(phaseNames, func(p v1alpha1.ActionPhase) bool { return strings.EqualFold(string(p), s) })
	if n < 0 {
		return "", fmt.Errorf("--phase %q is none of %v", s, phaseNames)
	}
	return phaseNames[n], nil
}
