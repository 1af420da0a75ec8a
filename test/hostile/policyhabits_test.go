package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/test/kube"
)

// What a change of policies or members may take while the engine is busy all the time.
const servedWithin = 2 * time.Minute

// violations returns a page of what is found.
func (r *rig) violations(ctx context.Context, q url.Values) (f findings, err error) {
	q.Set("limit", "500")
	code, body, err := get(ctx, r.admin, r.host+"/query/v1/violations?"+q.Encode(), "application/json")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("violations: %d %.300s", code, body)
	}
	if err == nil {
		err = json.Unmarshal(body, &f)
	}
	return f, err
}

// bindWhileBusy binds a policy again while there is always another batch to evaluate.
func (r *rig) bindWhileBusy(ctx context.Context, _ *rand.Rand, user string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	name := "late-" + user[strings.LastIndex(user, "-")+1:]
	policy := fmt.Sprintf(fleetPolicy, name, "own", lenient)
	if err := r.hub.Apply(ctx, []byte(policy)); err != nil {
		return err
	}
	bound := func(want bool) error {
		return kube.Until(ctx, servedWithin, func() error {
			f, err := r.violations(ctx, url.Values{"policy": {name}, "member": {honest[0]}})
			switch {
			case err != nil && want:
				return err
			case want && len(f.Items) == 0:
				return fmt.Errorf("%s finds nothing", name)
			case !want && err == nil && len(f.Items) > 0:
				return fmt.Errorf("%s still finds something", name)
			}
			return nil
		})
	}
	found := bound(true)
	gone := r.hub.Client().CoreV1().RESTClient().Delete().AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies/" + name).Do(ctx).Error()
	if found != nil {
		return errors.Join(&Finding{"served", fmt.Errorf("a policy that was bound while the engine was busy: %w", found)}, gone)
	}
	if err := bound(false); err != nil && gone == nil {
		return &Finding{"served", fmt.Errorf("a policy that has gone while the engine was busy: %w", err)}
	}
	return gone
}

// changeHonest changes an object of an honest member while another wastes the time of the
// policy that evaluates it: it is evaluated all the same.
func (r *rig) changeHonest(ctx context.Context, _ *rand.Rand, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	m, ns, name := r.sims.Members()[0], markedNamespaces[0], fmt.Sprintf("%s-%s-0", mark(honest[0], deployments), markedNamespaces[0])
	// What the other member has is evaluated, or deferred for what it costs.
	err := kube.Until(ctx, holdsWithin, func() error {
		f, err := r.violations(ctx, url.Values{"policy": {"costly"}, "state": {"Error"}})
		if err == nil && len(f.Items) == 0 {
			err = errors.New("nothing wastes its time")
		}
		return err
	})
	if err != nil {
		r.note("changes: %v", err)
	}
	for _, image := range []string{"other", "i"} {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":%q}]}}}}`, image)
		if err := m.Patch(schema.GroupResource{Group: "apps", Resource: "deployments"}, ns, name, []byte(patch)); err != nil {
			return err
		}
		err := kube.Until(ctx, servedWithin, func() error {
			f, err := r.violations(ctx, url.Values{"policy": {"costly"}, "member": {honest[0]}})
			if err != nil {
				return err
			}
			found := false
			for _, x := range f.Items {
				if x.State == "Error" {
					return fmt.Errorf("%+v", x)
				}
				found = found || x.Subject.Name == name
			}
			if found != (image == "i") {
				return fmt.Errorf("%s has image %s, and a violation: %v", name, image, found)
			}
			return nil
		})
		if err != nil {
			return &Finding{"verdicts", fmt.Errorf("of what has changed in an honest member: %w", err)}
		}
	}
	return nil
}

// changeLibrary changes what a policy imports by the name of its parent.
func (r *rig) changeLibrary(ctx context.Context, rng *rand.Rand, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	word := fmt.Sprintf("bad%d", rng.Uint32())
	if _, err := r.repo.Commit(library(word)); err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"federator.dev/sync":%q}}}`, word)
	err := r.hub.Client().CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/federator.dev/v1alpha1/policysources/git").Body([]byte(patch)).Do(ctx).Error()
	if err != nil {
		return err
	}
	err = kube.Until(ctx, patience, func() error {
		for _, member := range honest {
			f, err := r.violations(ctx, url.Values{"policy": {"imports"}, "member": {member}})
			if err != nil {
				return err
			}
			if len(f.Items) == 0 {
				return fmt.Errorf("nothing is found in %s", member)
			}
			for _, x := range f.Items {
				if len(x.Violations) != 1 || !strings.HasSuffix(x.Violations[0].Msg, " is "+word) {
					return fmt.Errorf("%+v: the library says %q", x, word)
				}
			}
		}
		return nil
	})
	if err != nil {
		source, _ := r.hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/policysources/git").DoRaw(ctx)
		policy, _ := r.hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/fleetpolicies/imports").DoRaw(ctx)
		return &Finding{"libraries", fmt.Errorf("%w\n%s\n%s", err, source, policy)}
	}
	return nil
}

// rejoin lets a member leave and join under its name with another label, while the engine
// evaluates one long batch.
func (r *rig) rejoin(ctx context.Context, _ *rand.Rand, user string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	p, err := Listen(r.upon[honest[0]], disguise)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	kubeconfig, err := p.Kubeconfig()
	if err != nil {
		return err
	}
	plain := "r" + user[strings.LastIndex(user, "-")+1:]
	register := func(tier string) error {
		return r.hub.Register(ctx, kube.Cluster{Namespace: "evil", Name: plain, Kubeconfig: kubeconfig, Labels: map[string]string{"tier": tier}})
	}
	if err := register("first"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.hub.Unregister(context.WithoutCancel(ctx), "evil", plain)) }()
	for _, tier := range []string{"first", "second", "first", "second"} {
		var f findings
		found := func() (err error) {
			f, err = r.violations(ctx, url.Values{"policy": {"tiers"}, "member": {"evil/" + plain}})
			if err == nil && len(f.Items) == 0 {
				err = errors.New("nothing is found")
			}
			return err
		}
		// How long it takes until it is there again, with as much to do, has no meaning.
		if err := kube.Until(ctx, 2*patience, found); err != nil {
			return err
		}
		err := kube.Until(ctx, servedWithin, func() error {
			if err := found(); err != nil {
				return err
			}
			for _, x := range f.Items {
				if len(x.Violations) != 1 || !strings.HasSuffix(x.Violations[0].Msg, " is in tier "+tier) {
					return fmt.Errorf("%+v: it is in tier %s", x, tier)
				}
			}
			return nil
		})
		if err != nil {
			return &Finding{"verdicts", fmt.Errorf("of a member that has rejoined: %w", err)}
		}
		next := map[string]string{"first": "second", "second": "first"}[tier]
		if err := r.hub.Unregister(ctx, "evil", plain); err != nil {
			return err
		}
		if err := register(next); err != nil {
			return err
		}
	}
	return nil
}
