package hubrequests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"federator.dev/federator/api"
	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
)

// ErrTimeout is within errors of outcomes that did not come in time.
var ErrTimeout = errors.New("timed out waiting for the outcome")

// RollbackAction rolls back an Action: it asks the leader, waits for the outcome, and withdraws
// the request on timeout. It returns what the leader says of it.
func (c Client) RollbackAction(ctx context.Context, a *v1alpha1.Action, reason string, force bool, timeout time.Duration) (string, error) {
	if a.Status.Phase == v1alpha1.PhaseRolledBack {
		return "", conflictError("action %q is already rolled back, %s", a.Name, printable(a.Status.Message))
	}
	how := api.RollbackValue
	if force {
		how = api.RollbackForce
	}
	notes := map[string]any{api.RollbackOutcomeKey: nil, api.RollbackReasonKey: nil}
	if reason != "" {
		notes[api.RollbackReasonKey] = printable(reason)
	}
	if err := c.relabel(ctx, a.Name, c.FieldManager(ctx), how, notes); err != nil {
		return "", err
	}
	outcome, err := c.outcome(ctx, a.Name, timeout)
	if err != nil {
		return "", err
	}
	word, message, _ := strings.Cut(outcome, " ")
	if word != hub.RollbackSucceeded {
		return "", conflictError("action %q: rollback %s: %s", a.Name, word, printable(message))
	}
	return printable(message), nil
}

// relabel requests a rollback, or withdraws the request with nil.
func (c Client) relabel(ctx context.Context, name, by string, how any, notes map[string]any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{api.RollbackKey: how}, "annotations": notes}})
	if err != nil {
		return err
	}
	err = c.Objects("PATCH", v1alpha1.Actions, name).SetHeader("Content-Type", string(types.MergePatchType)).
		Param("fieldManager", by).Body(body).Do(ctx).Error()
	if err != nil {
		return c.Explain(err, "action", name)
	}
	return nil
}

// outcome waits for the outcome of a request, and withdraws it on timeout.
func (c Client) outcome(ctx context.Context, name string, timeout time.Duration) (string, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, timeout, ErrTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a, err := c.Action(waiting, name)
		if err == nil {
			if text := a.Annotations[api.RollbackOutcomeKey]; text != "" {
				return text, nil
			}
			if a.Labels[api.RollbackKey] == "" {
				return "", conflictError("action %q: the request was withdrawn by another client", name)
			}
		}
		if waiting.Err() == nil {
			select {
			case <-waiting.Done():
			case <-tick.C:
				continue // also after an error: the request must not stay
			}
		}
		return "", c.withdraw(ctx, name, context.Cause(waiting))
	}
}

// withdraw withdraws a request for a rollback, and returns why.
func (c Client) withdraw(ctx context.Context, name string, cause error) error {
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	cause = fmt.Errorf("action %q: %w", name, cause)
	if err := c.relabel(late, name, "federator-actions", nil, map[string]any{api.RollbackReasonKey: nil}); err != nil {
		return errors.Join(cause, fmt.Errorf("withdrawing the request failed: %w", err))
	}
	return fmt.Errorf("%w; the request is withdrawn (is federator running, with policies.hub?)", cause)
}

var fullCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// ParseSelection returns what is selected of a policy's Actions, at a time: since and until are
// durations before it, or times. name returns how the caller calls a field.
func ParseSelection(policy, commit, since, until string, now time.Time, name func(field string) string) (spec v1alpha1.RollbackSpec, err error) {
	spec.Policy, spec.Commit = v1alpha1.PolicyName(policy), v1alpha1.CommitHash(commit)
	if spec.Since, err = parseTime(name("since"), since, now); err != nil {
		return spec, err
	}
	if spec.Until, err = parseTime(name("until"), until, now); err != nil {
		return spec, err
	}
	switch {
	case commit != "" && !fullCommit.MatchString(commit):
		return spec, inputError("%s %q: not the full hash of a commit: 40 or 64 hexadecimal digits", name("commit"), commit)
	case commit == "" && since == "":
		return spec, inputError("%s or %s is required with %s: which Actions are to be rolled back?", name("since"), name("commit"), name("policy"))
	case spec.Since != nil && spec.Until != nil && !spec.Since.Before(spec.Until):
		return spec, inputError("%s %q must be after %s %q", name("until"), until, name("since"), since)
	}
	return spec, nil
}

// parseTime reads a duration before now, or a time; seconds are kept.
func parseTime(name, text string, now time.Time) (*metav1.Time, error) {
	if text == "" {
		return nil, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return nil, inputError("%s %q: neither a duration such as 1h30m nor a time such as %s", name, text, now.UTC().Truncate(time.Second).Format(time.RFC3339))
		}
		at = now.Add(-d)
	}
	if at.After(now) {
		return nil, inputError("%s %q is in the future", name, text)
	}
	out := metav1.NewTime(at.Truncate(time.Second).UTC())
	return &out, nil
}

// CreateRollback creates a Rollback in the caller's name.
func (c Client) CreateRollback(ctx context.Context, spec v1alpha1.RollbackSpec) (*v1alpha1.Rollback, error) {
	me, err := c.whoAmI(ctx)
	if err != nil {
		return nil, err
	}
	spec.By, spec.Groups = v1alpha1.UserName(me.Username), groupsToName(me.Groups, nil)
	body, err := json.Marshal(&v1alpha1.Rollback{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion, Kind: "Rollback"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: string(spec.Policy) + "-"}, Spec: spec,
	})
	if err != nil {
		return nil, err
	}
	made := &v1alpha1.Rollback{}
	if err := Do(ctx, c.Objects("POST", v1alpha1.Rollbacks).SetHeader("Content-Type", "application/json").Body(body), made); err != nil {
		return nil, fmt.Errorf("rolling back FleetPolicy %q: %w", spec.Policy, err)
	}
	return made, nil
}
