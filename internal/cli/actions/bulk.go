package actions

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/cli/console"
	"federator.dev/federator/internal/exit"
	"federator.dev/federator/pkg/remediate/rollbackplan"
)

// bulk are the flags of `federator actions rollback` for many Actions.
type bulk struct {
	policy, commit, since, until string

	whileStopped, yes, wait bool
}

var fullCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// selection returns what is selected, at a time.
func (b *bulk) selection(now time.Time) (spec v1alpha1.RollbackSpec, err error) {
	spec.Policy, spec.Commit, spec.WhileStopped = v1alpha1.PolicyName(b.policy), v1alpha1.CommitHash(b.commit), b.whileStopped
	if spec.Since, err = parseTime("since", b.since, now); err != nil {
		return spec, err
	}
	if spec.Until, err = parseTime("until", b.until, now); err != nil {
		return spec, err
	}
	switch {
	case b.commit != "" && !fullCommit.MatchString(b.commit):
		return spec, fmt.Errorf("--commit %q: not the full hash of a commit: 40 or 64 hexadecimal digits", b.commit)
	case b.commit == "" && b.since == "":
		return spec, errors.New("--since or --commit is required with --policy: which Actions are to be rolled back?")
	case spec.Since != nil && spec.Until != nil && !spec.Since.Before(spec.Until):
		return spec, fmt.Errorf("--until %q must be after --since %q", b.until, b.since)
	}
	return spec, nil
}

// parseTime reads a duration before now, or a time; seconds are kept.
func parseTime(flag, text string, now time.Time) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("--%s %q: neither a duration such as 1h30m nor a time such as %s", flag, text, now.UTC().Truncate(time.Second).Format(time.RFC3339))
		}
		at = now.Add(-d)
	}
	if at.After(now) {
		return nil, fmt.Errorf("--%s %q is in the future", flag, text)
	}
	out := metav1.NewTime(at.Truncate(time.Second).UTC())
	return &out, nil
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
	made, err := c.createRollback(ctx, spec)
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
	fp, err := c.policy(ctx, string(spec.Policy))
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

// createRollback creates a Rollback in the caller's name.
func (c *hubClient) createRollback(ctx context.Context, spec v1alpha1.RollbackSpec) (*v1alpha1.Rollback, error) {
	me, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking the hub who you are: %w", err)
	}
	spec.By, spec.Groups = v1alpha1.UserName(me.Status.UserInfo.Username), groupsToName(me.Status.UserInfo.Groups, nil)
	body, err := json.Marshal(&v1alpha1.Rollback{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Rollback"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: string(spec.Policy) + "-"}, Spec: spec,
	})
	if err != nil {
		return nil, err
	}
	made := &v1alpha1.Rollback{}
	if err := do(ctx, c.objects("POST", v1alpha1.Rollbacks).SetHeader("Content-Type", "application/json").Body(body), made); err != nil {
		return nil, fmt.Errorf("rolling back FleetPolicy %q: %w", spec.Policy, err)
	}
	return made, nil
}

// follow waits until a Rollback has ended, and prints its states.
func (c *hubClient) follow(ctx context.Context, r *v1alpha1.Rollback, timeout time.Duration, out io.Writer) error {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	shown := ""
	for {
		now := &v1alpha1.Rollback{}
		switch err := do(waiting, c.objects("GET", v1alpha1.Rollbacks, r.Name), now); {
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
