package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// step is one step of the demo.
type step struct {
	title string
	run   func(context.Context) error
}

func (d *demo) story() []step {
	return []step{
		{"A cluster behind NAT: its agent connects to federator, and nothing connects to it.", d.nat},
		{"One view of all clusters, for everybody who may read them.", d.view},
		{"Policies see across clusters: one host must not be served from two.", d.violations},
		{"Policies come from git. The first version of this one has a mistake: it finds nothing.", d.source},
		{"A commit fixes it.", d.fix},
		{"Somebody changes an app on a member.", d.drift},
		{"A commit that does not compile changes nothing.", d.broken},
		{"A commit that would change most of the fleet at once waits for somebody.", d.halt},
		{"A correction is rolled back.", d.rollback},
		{"Everything that was written is recorded.", d.record},
		{"This policy requires approval: what it would write is shown as a plan, and waits.", d.plan},
		{"People approve the plan: what they have seen, and nothing else.", d.approve},
		{"One cluster goes first, and the rollout stops itself there.", d.canary},
		{"All of it can be looked at, and the halt of the rollout let pass, in a browser.", d.ui},
	}
}

// works is a line that must succeed, perhaps not at once: the query API may not listen
// yet, an object may change meanwhile.
func works(line string) probe { return probe{line, func(string) error { return nil }} }

// policy is a probe of a FleetPolicy that must have some cells.
func policy(name string, cells ...string) probe {
	return probe{"kubectl get fleetpolicy " + name, func(out string) error { return has(out, append(cells, "NAME="+name)...) }}
}

// deployment is a probe of an app on a member that must be ready.
func deployment(member, app, ready string) probe {
	return probe{fmt.Sprintf("kubectl --kubeconfig %s.yaml -n shop get deployment %s", member, app), func(out string) error {
		return has(out, "NAME="+app, "READY="+ready)
	}}
}

// nat lets the member join that the hub cannot reach: with a token, and an agent that runs beside it.
func (d *demo) nat(ctx context.Context) error {
	for _, line := range []string{"cat member.yaml", "kubectl apply -f member.yaml"} {
		if err := d.show(ctx, line); err != nil {
			return err
		}
	}
	if err := d.until(ctx, works("federator agent token fleet/ap-1 > token")); err != nil {
		return err
	}
	d.note("federator agent --hub %s --token-file token --kubeconfig ap-1.yaml --state-dir agent", d.federator.agents)
	var err error
	d.agent, err = start(d.dir, filepath.Join(d.dir, "agent.log"), d.federator.binary, "agent", "--hub", d.federator.agents, "--token-file", "token", "--kubeconfig", "ap-1.yaml", "--state-dir", "agent")
	if err != nil {
		return err
	}
	return d.until(
		ctx,
		probe{"kubectl get members.federator.dev -n fleet", func(out string) error { return has(out, "NAME=ap-1", "CONNECTED=true") }},
		probe{"federator members --server " + d.federator.admin, func(out string) error { return has(out, "NAME=fleet/ap-1", "STATE=Connected") }},
	)
}

// view asks the query API for Deployments of all members.
func (d *demo) view(ctx context.Context) error {
	return d.until(
		ctx,
		works("federator kubeconfig --server "+d.federator.query+" --certificate-authority tls.crt --service-account teams/ann -o fleet.yaml"),
		probe{"kubectl --kubeconfig fleet.yaml get deployments -A", func(out string) error {
			var err error
			for _, m := range members {
				for _, a := range m.Apps {
					err = errors.Join(err, has(out, "CLUSTER=fleet/"+m.Name, "NAME="+a.Name, fmt.Sprintf("READY=%d/%[1]d", a.Replicas)))
				}
			}
			return err
		}},
	)
}

// violations shows a policy of several clusters and one of each by itself.
func (d *demo) violations(ctx context.Context) error {
	if err := d.show(ctx, "kubectl apply -f library.yaml"); err != nil {
		return err
	}
	return d.until(
		ctx,
		probe{"kubectl get fleetpolicies", func(out string) error {
			return errors.Join(
				has(out, "NAME=unique-host", "VIOLATIONS=2", "UNKNOWN=0", "STATE=Observing", "READY=True"),
				has(out, "NAME=privileged", "VIOLATIONS=1", "UNKNOWN=0", "STATE=Observing", "READY=True"),
			)
		}},
		probe{
			`kubectl get fleetpolicy unique-host -o jsonpath='{range .status.members[?(@.violations>0)]}{.name}{": "}{.violations}{"\n"}{end}'`,
			func(out string) error { return says(out, "fleet/eu-1: 1\nfleet/us-1: 1") },
		},
		probe{"federator violations --kubeconfig fleet.yaml --severity critical", func(out string) error {
			return has(out, "POLICY=privileged", "MEMBER=fleet/ap-1", "VIOLATION=container debug is privileged")
		}},
	)
}

// source brings the repository, whose policy finds nothing.
func (d *demo) source(ctx context.Context) error {
	head, err := d.repo.Run("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	for _, line := range []string{"cat policies/replicas.yaml", "kubectl apply -f source.yaml"} {
		if err := d.show(ctx, line); err != nil {
			return err
		}
	}
	return d.until(
		ctx,
		probe{"kubectl get policysources", func(out string) error { return has(out, "NAME=platform", "ACTIVE="+head, "READY=True") }},
		policy("replicas", "MODE=Enforce", "VIOLATIONS=0", "UNKNOWN=0", "READY=True"),
	)
}

// fix commits a policy that finds the app with a single replica.
func (d *demo) fix(ctx context.Context) error {
	began := time.Now()
	if err := d.push(ctx, "Ask for as many replicas as the parameter says", change{"replicas.rego", "replicas < 1", "replicas < input.parameters.replicas"}); err != nil {
		return err
	}
	if err := await(ctx, 10*time.Millisecond, func(ctx context.Context) error { return d.replicas(ctx, "us-1", "cart", 2) }); err != nil {
		return err
	}
	d.note("%s after the commit, fleet/us-1 is to run cart twice.", since(began))
	return d.until(
		ctx,
		policy("replicas", "VIOLATIONS=0", "UNKNOWN=0", "CORRECTED=1", "READY=True"),
		deployment("us-1", "cart", "2/2"),
	)
}

// drift changes an app and measures how long that lasts.
func (d *demo) drift(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	watch, err := d.member("eu-1").Client().AppsV1().Deployments("shop").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=cart"})
	if err != nil {
		return err
	}
	defer watch.Stop()
	if err := d.show(ctx, "kubectl --kubeconfig eu-1.yaml -n shop scale deployment cart --replicas=1"); err != nil {
		return err
	}
	changed, err := seen(watch, 1)
	if err != nil {
		return err
	}
	corrected, err := seen(watch, 2)
	if err != nil {
		return err
	}
	d.note("%s after the write, a watch on fleet/eu-1 saw it undone.", corrected.Sub(changed).Round(time.Millisecond))
	return d.until(ctx, probe{"kubectl get actions", func(out string) error {
		return errors.Join(
			has(out, "MEMBER=fleet/us-1", "TARGET=cart", "PHASE=Succeeded"),
			has(out, "MEMBER=fleet/eu-1", "TARGET=cart", "PHASE=Succeeded"),
		)
	}})
}

// broken commits a policy that does not compile. What was good is observed, and nothing
// is written until a commit is good again.
func (d *demo) broken(ctx context.Context) error {
	good, err := d.repo.Run("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	if err := d.push(ctx, "Break it", change{"replicas.rego", "replicas < input.parameters.replicas", "replicas < wanted"}); err != nil {
		return err
	}
	finding := fmt.Sprintf("replicas.rego:%d: var wanted is unsafe", d.line("replicas.rego", "wanted"))
	return d.until(
		ctx,
		probe{"kubectl get policysources", func(out string) error {
			return has(out, "NAME=platform", "ACTIVE="+good, "READY=False", "REASON=Compile")
		}},
		probe{
			`kubectl get policysource platform -o jsonpath='{range .status.findings[*]}{.file}:{.line}: {.message}{"\n"}{end}'`,
			func(out string) error { return says(out, finding) },
		},
		policy("replicas", "VIOLATIONS=0", "STATE=Held"),
	)
}

// halt commits a change of nine apps where three are the limit.
func (d *demo) halt(ctx context.Context) error {
	if err := d.push(
		ctx, "Ask for three replicas",
		change{"replicas.rego", "replicas < wanted", "replicas < input.parameters.replicas"},
		change{"replicas.yaml", "replicas: 2", "replicas: 3"},
	); err != nil {
		return err
	}
	if err := d.until(ctx, policy("replicas", "VIOLATIONS=9", "CORRECTED=2", "STATE=Halted")); err != nil {
		return err
	}
	if err := d.show(ctx, `kubectl get fleetpolicy replicas -o jsonpath='{.status.halted.message}{"\n"}'`); err != nil {
		return err
	}
	if err := d.all(ctx, 2); err != nil {
		return fmt.Errorf("something was written: %w", err)
	}
	d.note("Nothing was written. Somebody looks at it, and lets it pass:")
	began := time.Now()
	if err := d.until(ctx, works("federator actions ack replicas")); err != nil {
		return err
	}
	if err := await(ctx, 10*time.Millisecond, func(ctx context.Context) error { return d.all(ctx, 3) }); err != nil {
		return err
	}
	d.note("%s later, all of them are to have 3 replicas.", since(began))
	return d.until(ctx, policy("replicas", "VIOLATIONS=0", "UNKNOWN=0", "READY=True"))
}

// rollback reverts one of the corrections. The policy is suspended first: it would correct
// the app again.
func (d *demo) rollback(ctx context.Context) error {
	var name string
	err := await(ctx, 100*time.Millisecond, func(ctx context.Context) (err error) {
		name, err = d.action(ctx, "ap-1", "search")
		return err
	})
	if err != nil {
		return err
	}
	if err := d.show(ctx, `kubectl patch fleetpolicy replicas --type merge -p '{"spec":{"suspend":true}}'`); err != nil {
		return err
	}
	if err := d.until(ctx, policy("replicas", "STATE=Suspended"), deployment("ap-1", "search", "3/3")); err != nil {
		return err
	}
	return d.until(
		ctx,
		works("federator actions rollback "+name+" --reason 'two are enough in Japan'"),
		probe{"kubectl get action " + name, func(out string) error { return has(out, "NAME="+name, "PHASE=RolledBack") }},
		deployment("ap-1", "search", "2/2"),
	)
}

// record shows all Actions: two corrections, nine, and the rollback of one of the nine.
func (d *demo) record(ctx context.Context) error {
	return d.until(
		ctx,
		probe{"kubectl get actions", func(out string) error {
			return errors.Join(rows(out, "PHASE=Succeeded", 11), rows(out, "PHASE=RolledBack", 1))
		}},
		probe{"kubectl --kubeconfig fleet.yaml get deployments -A -l tier=critical", func(out string) error {
			return errors.Join(rows(out, "READY=3/3", 11), has(out, "CLUSTER=fleet/ap-1", "NAME=search", "READY=2/2"))
		}},
	)
}
