package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
)

// approvers are the users who may approve.
var approvers = []string{"bob", "cleo"}

// plan commits a policy that requires approval: what it would write is a Plan, and waits.
func (d *demo) plan(ctx context.Context) error {
	var names []string
	for _, name := range []string{"memory.rego", "memory_test.rego", "memory.yaml"} {
		names = append(names, filepath.Join("policies", name))
		if err := os.WriteFile(filepath.Join(d.repo.Dir, name), []byte(file(name)), 0o644); err != nil {
			return err
		}
	}
	if err := d.show(ctx, "cat "+names[2]); err != nil {
		return err
	}
	if err := errors.Join(d.commit("Ask for memory"), d.show(ctx, "git -C policies show --oneline --stat"), d.fetch(ctx)); err != nil {
		return err
	}
	if err := d.until(
		ctx,
		policy("memory", "MODE=Enforce", "VIOLATIONS=3", "UNKNOWN=0", "CORRECTED=0"),
		probe{`kubectl get fleetpolicy memory -o jsonpath='{.status.conditions[?(@.type=="Approved")].message}{"\n"}'`, func(out string) error {
			return matches(out, "waits for Approvals of 2 people, and has 0")
		}},
		probe{"federator actions plan memory --kubeconfig fleet.yaml", func(out string) error {
			err := errors.Join(matches(out, `State: +Waiting`), matches(out, `Approvals: +0 of 2`), matches(out, `Targets: +3`))
			for _, m := range members {
				err = errors.Join(err, matches(out, "fleet/"+m.Name+` +patch +Deployment\.apps +shop +search`))
			}
			return err
		}},
	); err != nil {
		return err
	}
	if err := d.memory(ctx, "16Mi", "16Mi", "16Mi"); err != nil {
		return fmt.Errorf("something was written: %w", err)
	}
	d.note("Nothing was written. Two people must agree, not one: nobody has signed the commit, so either could be its author.")
	return nil
}

// approve has people approve the Plan. What they let pass is what it shows, by its hash.
func (d *demo) approve(ctx context.Context) error {
	plan, err := d.waiting(ctx, "memory")
	if err != nil {
		return err
	}
	for _, name := range approvers {
		if err := d.show(ctx, fmt.Sprintf("federator actions approve memory --kubeconfig %s.yaml --plan %s --reason 'as discussed'", name, plan)); err != nil {
			return err
		}
	}
	return d.until(ctx, probe{"kubectl get approvals", func(out string) error {
		return errors.Join(has(out, "POLICY=memory", "BY=bob", "STATE=Counts"), has(out, "POLICY=memory", "BY=cleo", "STATE=Counts"))
	}})
}

// canary waits for the first wave to fail. The others are as they were.
func (d *demo) canary(ctx context.Context) error {
	if err := d.until(
		ctx,
		probe{"kubectl --kubeconfig eu-1.yaml -n shop get pods -l app=search", func(out string) error {
			return errors.Join(rows(out, "STATUS=Running", 3), rows(out, "STATUS=Pending", 1))
		}},
	); err != nil {
		return err
	}
	d.note("fleet/eu-1 is the canary: search was written there. No node has so much memory, and its new pod stays Pending.")
	if err := d.until(
		ctx,
		policy("memory", "VIOLATIONS=2", "CORRECTED=1", "STATE=Halted"),
		probe{`kubectl get fleetpolicy memory -o jsonpath='{.status.halted.reason}: {.status.halted.message}{"\n"}'`, func(out string) error {
			return matches(out, `^Unhealthy: wave "canary": 1 objects are not healthy after 10s`)
		}},
		probe{"kubectl --kubeconfig fleet.yaml get deployments -A -l app=search -o custom-columns='" +
			`MEMBER:.metadata.annotations.federator\.dev/member,MEMORY:.spec.template.spec.containers[0].resources.requests.memory'`, func(out string) error {
			return errors.Join(has(out, "MEMBER=fleet/eu-1", "MEMORY=64Gi"), has(out, "MEMBER=fleet/us-1", "MEMORY=16Mi"), has(out, "MEMBER=fleet/ap-1", "MEMORY=16Mi"))
		}},
	); err != nil {
		return err
	}
	if err := d.memory(ctx, "64Gi", "16Mi", "16Mi"); err != nil {
		return fmt.Errorf("the halt has not held: %w", err)
	}
	d.note("The rollout has stopped itself: us-1 and ap-1 were not written, and nothing goes on before a person decides. The canary's old pods still serve.")
	return d.takeBack(ctx)
}

// takeBack rolls back what the policy has written, which another person approves.
func (d *demo) takeBack(ctx context.Context) error {
	d.note("Somebody decides to take the change back. The policy requires approval, and so does what it has written:")
	if err := d.until(
		ctx,
		works("federator actions rollback --policy memory --since 10m --reason 'no node has 64Gi' --yes"),
		probe{"kubectl get rollbacks", func(out string) error { return has(out, "POLICY=memory", "STATE=Waiting", "REASON=Approval") }},
	); err != nil {
		return err
	}
	plan, err := d.waiting(ctx, "memory")
	if err != nil {
		return err
	}
	if err := d.show(ctx, "federator actions approve memory --kubeconfig bob.yaml --rollback "+plan+" --reason 'agreed'"); err != nil {
		return err
	}
	return d.until(
		ctx,
		probe{"kubectl get rollbacks", func(out string) error { return has(out, "POLICY=memory", "STATE=Done") }},
		probe{"kubectl --kubeconfig eu-1.yaml -n shop get pods -l app=search", func(out string) error {
			return errors.Join(rows(out, "STATUS=Running", 3), rows(out, "STATUS=Pending", 0))
		}},
		policy("memory", "VIOLATIONS=3", "STATE=Halted"), // it does not write it again
	)
}

// waiting waits for the Plan of a policy that waits for approval, and returns its name.
func (d *demo) waiting(ctx context.Context, policy string) (name string, err error) {
	err = await(ctx, 100*time.Millisecond, func(ctx context.Context) (err error) {
		name, err = d.waitingNow(ctx, policy)
		return err
	})
	return name, err
}

func (d *demo) waitingNow(ctx context.Context, policy string) (string, error) {
	body, err := d.fleet.Hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/plans").Param("fieldSelector", "spec.policy="+policy+",status.state=Waiting").Do(ctx).Raw()
	var list v1alpha1.PlanList
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err == nil && len(list.Items) != 1 {
		err = fmt.Errorf("%d Plans of %s wait for approval", len(list.Items), policy)
	}
	if err != nil {
		return "", err
	}
	return list.Items[0].Name, nil
}

// memory is an error unless search requests so much memory in each of the members.
func (d *demo) memory(ctx context.Context, want ...string) (err error) {
	for i, m := range members {
		app, failed := d.member(m.Name).Client().AppsV1().Deployments("shop").Get(ctx, "search", metav1.GetOptions{})
		if failed != nil {
			err = errors.Join(err, failed)
		} else if got := app.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String(); got != want[i] {
			err = errors.Join(err, fmt.Errorf("search of %s requests %s of memory, not %s", m.Name, got, want[i]))
		}
	}
	return err
}

// matches is an error unless the output has what a pattern matches.
func matches(out, pattern string) error {
	if !regexp.MustCompile(pattern).MatchString(out) {
		return fmt.Errorf("it does not have %q", pattern)
	}
	return nil
}
