package actions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/internal/hubrequests"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// bulk are the flags of `federator actions rollback` for many Actions.
type bulk struct {
	policy, commit, since, until string

	whileStopped, yes, wait bool
}

// selection returns what is selected, at a time.
func (b *bulk) selection(now time.Time) (v1alpha1.RollbackSpec, error) {
	spec, err := hubrequests.ParseSelection(b.policy, b.commit, b.since, b.until, now, func(field string) string { return "--" + field })
	spec.WhileStopped = b.whileStopped
	return spec, err
}

// runBulk shows what would be rolled back, asks, and creates a Rollback.
func (r *rollback) runBulk(ctx context.Context, c *hubClient, spec v1alpha1.RollbackSpec, in io.Reader, out io.Writer) error {
	gathered, err := rollbackplan.NewStore(c.CoreV1().RESTClient()).Actions(ctx, spec.Policy)
	if err != nil {
		return err
	}
	selected := gathered.Select(&spec)
	if _, err := out.Write(bulkText(&spec, selected, console.Colored(out))); err != nil {
		return err
	}
	if err := c.bulkHint(ctx, &spec, out); err != nil || r.dryRun || len(selected.Targets) == 0 {
		return err
	}
	if !r.bulk.yes {
		if err := confirm(fmt.Sprintf("Roll back %s?", console.Plural(len(selected.Targets), "target", "targets")), in, out); err != nil {
			return err
		}
	}
	spec.Reason, spec.Force = r.reason, r.force
	made, err := c.CreateRollback(ctx, spec)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "rollback %s created\n", made.Name); err != nil || !r.bulk.wait {
		return err
	}
	return c.follow(ctx, made, r.timeout, out)
}

// bulkText says what would be rolled back, and what would not be.
func bulkText(spec *v1alpha1.RollbackSpec, s *rollbackplan.Selection, color bool) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "FleetPolicy %s: %s would be rolled back (%s)", spec.Policy, console.Plural(len(s.Targets), "target", "targets"), console.Plural(s.Actions(), "Action", "Actions"))
	if spec.Since != nil {
		fmt.Fprintf(&b, ", written since %s", spec.Since.UTC().Format(time.RFC3339))
	}
	if spec.Until != nil {
		fmt.Fprintf(&b, ", before %s", spec.Until.UTC().Format(time.RFC3339))
	}
	if spec.Commit != "" {
		fmt.Fprintf(&b, ", with commit %s", spec.Commit)
	}
	b.WriteByte('\n')
	if len(s.Targets) > 0 {
		b.WriteByte('\n')
		b.Write(bulkCounts(s, color))
	}
	if n := s.Irreversible(); n > 0 {
		fmt.Fprintf(&b, "\n%s cannot be restored, or not in full:\n", console.Plural(n, "target", "targets"))
		shown := 0
		for i := range s.Targets {
			if t := &s.Targets[i]; t.Lost != "" && shown < maxLost {
				shown++
				fmt.Fprintf(&b, "  %s: %s\n", console.Printable(t.Ref.String()), console.Printable(t.Lost))
			}
		}
	}
	if len(s.LeftOut) > 0 {
		b.WriteString("\nLeft out:\n")
		t := console.NewTable("REASON", "ACTIONS", "ACTION", "WHY")
		for _, l := range s.LeftOut {
			t.AddRow(console.Cell{Text: l.Reason}, console.Cell{Text: fmt.Sprint(l.Actions), Right: true}, console.Cell{Text: l.Action}, console.Cell{Text: console.Printable(l.Message)})
		}
		b.Write(t.Render(color))
	}
	return b.Bytes()
}

// maxLost is how many targets are shown that are not restored in full.
const maxLost = 10

func bulkCounts(s *rollbackplan.Selection, color bool) []byte {
	type row struct {
		member, kind string
		verb         v1alpha1.Verb
	}
	counts := map[row]int{}
	var rows []row
	for i := range s.Targets {
		t := &s.Targets[i]
		r := row{t.Ref.Member, string(t.Ref.Kind), t.Verb}
		if counts[r]++; counts[r] == 1 {
			rows = append(rows, r)
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return counts[b] - counts[a] })
	t := console.NewTable("MEMBER", "KIND", "VERB", "TARGETS")
	for _, r := range rows {
		t.AddRow(console.Cell{Text: r.member}, console.Cell{Text: r.kind}, console.Cell{Text: string(r.verb)}, console.Cell{Text: fmt.Sprint(counts[r]), Right: true})
	}
	return t.Render(color)
}

// bulkHint says that the policy would write the same again: nothing is rolled back before it
// does not.
func (c *hubClient) bulkHint(ctx context.Context, spec *v1alpha1.RollbackSpec, out io.Writer) error {
	fp, err := c.Policy(ctx, string(spec.Policy))
	if err != nil || fp.Spec.Mode != v1alpha1.Enforce || fp.Spec.Suspend {
		return nil // It is a hint.
	}
	_, err = fmt.Fprintf(out, `
FleetPolicy %s enforces: the Rollback waits until it would not write the same again. Suspend it, stop
it with federator actions stop --policy, which takes --while-stopped, or change it:
  kubectl patch fleetpolicy %s --type merge -p '{"spec":{"suspend":true}}'
`, fp.Name, fp.Name)
	return err
}

// confirm asks a person.
func confirm(question string, in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintf(out, "\n%s [y/N] ", question); err != nil {
		return err
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	switch answer = strings.ToLower(strings.TrimSpace(answer)); {
	case answer == "y" || answer == "yes":
		return nil
	case err != nil:
		return exit.BadInput(errors.New("nobody answers: use --yes"))
	}
	return errors.New("nothing was rolled back")
}

// follow waits until a Rollback has ended, and prints its states.
func (c *hubClient) follow(ctx context.Context, r *v1alpha1.Rollback, timeout time.Duration, out io.Writer) error {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, hubrequests.ErrTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	shown := ""
	for {
		now := &v1alpha1.Rollback{}
		switch err := hubrequests.Do(waiting, c.Objects("GET", v1alpha1.Rollbacks, r.Name), now); {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("rollback %q was deleted: what is done stays done", r.Name)
		case err == nil && now.Status.State.IsFinal():
			return outcomeOf(now, out)
		case err == nil && now.Status.State != "":
			line := strings.TrimSpace(fmt.Sprintf("%s %s", now.Status.State, now.Status.Reason)) + ": " + console.Printable(now.Status.Message)
			if line != shown {
				shown = line
				if _, err := fmt.Fprintln(out, line); err != nil {
					return err
				}
			}
		}
		select {
		case <-waiting.Done():
			return fmt.Errorf("rollback %q: %w; it goes on: kubectl get rollback %s -o yaml (is federator running, with policies.hub?)", r.Name, context.Cause(waiting), r.Name)
		case <-tick.C:
		}
	}
}

// outcomeOf prints what has become of a Rollback. It is an error unless all targets are rolled
// back.
func outcomeOf(r *v1alpha1.Rollback, out io.Writer) error {
	s := &r.Status
	for _, o := range s.Outcomes {
		if _, err := fmt.Fprintf(out, "%s %s: %d, such as %s: %s\n", o.Result, o.Reason, o.Targets, o.Action, console.Printable(o.Message)); err != nil {
			return err
		}
	}
	if s.State != v1alpha1.RollbackDone || s.Failed+s.Refused > 0 {
		return fmt.Errorf("rollback %q is %s: %s", r.Name, console.WithReason(string(s.State), s.Reason), console.Printable(s.Message))
	}
	_, err := fmt.Fprintf(out, "rollback %s is Done: %s\n", r.Name, console.Printable(s.Message))
	return err
}
