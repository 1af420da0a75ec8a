package actions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
)

// hubFlags say which hub is meant, as kubectl's flags do.
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
		return nil, exit.BadInput(fmt.Errorf("the hub's kubeconfig: %w", err))
	}
	config.UserAgent = "federator/" + f.version
	config.QPS = -1 // a person's requests are few
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, exit.BadInput(fmt.Errorf("the hub's kubeconfig: %w", err))
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
		name = console.Printable(review.Status.UserInfo.Username)
	}
	return strings.ToValidUTF8(name[:min(len(name), 128)], "") // bytes, as the API server counts
}

// relabel asks for a rollback, or withdraws that with nil.
func (c *hubClient) relabel(ctx context.Context, name, by string, how any, notes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{api.RollbackKey: how}, "annotations": notes}})
	if err != nil {
		return err
	}
	err = c.objects("PATCH", v1alpha1.Actions, name).SetHeader("Content-Type", string(types.MergePatchType)).
		Param("fieldManager", by).Body(body).Do(ctx).Error()
	if err != nil {
		return c.explain(err, "action", name)
	}
	return nil
}

// outcome waits for the answer to a request, and withdraws it when time is up.
func (c *hubClient) outcome(ctx context.Context, name string, timeout time.Duration) (string, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := c.action(waiting, name)
		if err == nil {
			if text := a.Annotations[api.RollbackOutcomeKey]; text != "" {
				return text, nil
			}
			if a.Labels[api.RollbackKey] == "" {
				return "", fmt.Errorf("action %q: somebody else has withdrawn the request", name)
			}
		}
		if waiting.Err() == nil {
			select {
			case <-waiting.Done():
			case <-tick.C:
				continue // after an error, too: the request must not stay
			}
		}
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		cause := fmt.Errorf("action %q: %w", name, context.Cause(waiting))
		if err := c.relabel(late, name, "federator-actions", nil, map[string]any{api.RollbackReasonKey: nil}); err != nil {
			return "", errors.Join(cause, fmt.Errorf("the request cannot be withdrawn: %w", err))
		}
		return "", fmt.Errorf("%w; the request is withdrawn (does a federator run, with policies.hub?)", cause)
	}
}

// hint says whether the policy would do it again.
func (c *hubClient) hint(ctx context.Context, a *v1alpha1.Action, out io.Writer) error {
	fp, err := c.policy(ctx, a.Spec.Binding)
	if err != nil || fp.Spec.Mode != v1alpha1.Enforce || fp.Spec.Suspend || a.Spec.RollbackOf != "" {
		return nil // It is a hint.
	}
	_, err = fmt.Fprintf(out, `FleetPolicy %s still enforces: if the target violates it again, it is corrected again.
To keep it as it is, suspend the policy, exempt the target in it, or protect the target on the member:
  kubectl patch fleetpolicy %s --type merge -p '{"spec":{"suspend":true}}'
`, fp.Name, fp.Name)
	return err
}

// actions returns the Actions that are selected and kept, the newest last.
func (c *hubClient) actions(ctx context.Context, selector string, keep func(*v1alpha1.Action) bool) (*v1alpha1.ActionList, error) {
	out := &v1alpha1.ActionList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "ActionList"}, Items: []v1alpha1.Action{},
	}
	for next := ""; ; {
		page := &v1alpha1.ActionList{}
		r := c.objects("GET", v1alpha1.Actions).Param("limit", pageSize)
		if selector != "" {
			r = r.Param("fieldSelector", selector)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		if err := do(ctx, r, page); err != nil {
			return nil, c.explain(err, "actions", "")
		}
		for n := range page.Items {
			if a := &page.Items[n]; keep(a) {
				a.ManagedFields = nil
				out.Items = append(out.Items, *a)
			}
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	slices.SortStableFunc(out.Items, func(a, b v1alpha1.Action) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), within(&a).Compare(within(&b)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
