package notifications

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/pkg/hub"
	"federator.dev/federator/pkg/notify"
	"federator.dev/federator/pkg/notify/alerts"
	"federator.dev/federator/pkg/notify/delivery"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/notify/sinks"
)

// secretData is what a Secret has; it is empty where none is referred to.
type secretData struct {
	version string
	data    map[string][]byte
}

// text returns a value of one line.
func (s *secretData) text(key string) string {
	return strings.TrimRight(string(s.data[key]), "\r\n")
}

// hasAny reports whether a Secret has a key that the sink of a Notification takes.
func (s *secretData) hasAny(n *v1alpha1.Notification) bool {
	keys := []string{v1alpha1.TokenKey, v1alpha1.UsernameKey, v1alpha1.CAKey, v1alpha1.ClientCertificateKey}
	switch {
	case n.Spec.Webhook != nil:
		keys = []string{v1alpha1.SigningKey}
	case n.Spec.NATS != nil:
		keys = append(keys, v1alpha1.CredentialsKey)
	}
	return slices.ContainsFunc(keys, func(key string) bool { return len(s.data[key]) > 0 })
}

// secretOf returns the name of the Secret that a Notification refers to, "" for none.
func secretOf(n *v1alpha1.Notification) string {
	s := &n.Spec
	switch {
	case s.Webhook != nil:
		return s.Webhook.SecretRef.Name
	case s.NATS != nil && s.NATS.SecretRef != nil:
		return s.NATS.SecretRef.Name
	case s.Alertmanager != nil && s.Alertmanager.SecretRef != nil:
		return s.Alertmanager.SecretRef.Name
	}
	return ""
}

// readSecret reads the Secret, unless it was not long ago. What the hub cannot be asked for stays as it was, for the same spec: another one
// may name another receiver.
func (c *Controller) readSecret(ctx context.Context, n *v1alpha1.Notification, r *runner) problem {
	name := secretOf(n)
	if name == "" {
		r.secret = secretData{}
		return problem{}
	}
	wanted := strconv.FormatInt(n.Generation, 10) + "/"
	known := r.secret.data != nil && strings.HasPrefix(r.secret.version, wanted)
	if known && time.Since(r.readAt) < secretEvery {
		return problem{}
	}
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	got, err := c.secrets.Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil:
		r.secret, r.readAt = secretData{wanted + string(got.UID) + "/" + got.ResourceVersion, got.Data}, time.Now()
		if r.secret.data == nil {
			r.secret.data = map[string][]byte{}
		}
		return problem{}
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		r.secret = secretData{}
		return problem{v1alpha1.NotificationSecret, fmt.Sprintf("Secret %s/%s: %v", c.opts.Namespace, name, err)}
	case known && r.active():
		r.readAt = time.Now()
		c.opts.Logger.Error("a Secret cannot be read: what was read before is in use", "notification", n.Name, "error", err)
		return problem{}
	}
	return problem{v1alpha1.NotificationFailing, fmt.Sprintf("Secret %s/%s: %v", c.opts.Namespace, name, err)}
}

// build makes what sends for a Notification.
func (c *Controller) build(n *v1alpha1.Notification, r *runner, secret secretData) (work, problem) {
	selects, err := selection.New(selection.Options{Rules: rules(n), Named: r.named, Labels: c.labels})
	if err != nil {
		return nil, problem{v1alpha1.NotificationInvalid, "spec." + err.Error()}
	}
	if name := secretOf(n); name != "" && !secret.hasAny(n) {
		return nil, problem{v1alpha1.NotificationSecret, fmt.Sprintf("Secret %s/%s has none of the keys that the sink takes", c.opts.Namespace, name)}
	}
	if n.Spec.Alertmanager != nil {
		return c.alerts(n, selects, &secret)
	}
	to, err := c.sink(n, &secret)
	if err != nil {
		return nil, ofOptions(err)
	}
	opts := delivery.Options{
		UID: string(n.UID), Version: versionOf(n), Origin: c.opts.Origin, Log: c.opts.History, Sink: counting{to, c.metrics, n.Name}, Selects: selects.Selects,
		IncludeText: n.Spec.IncludeText, File: filepath.Join(c.opts.Directory, string(n.UID)+positionExt), Logger: c.opts.Logger.With("notification", n.Name),
	}
	if w := n.Spec.Webhook; w != nil {
		opts.Grouping = &delivery.Grouping{Wait: duration(w.Wait), Interval: duration(w.Interval), Messages: 1}
		for _, by := range w.GroupBy {
			opts.Grouping.By = append(opts.Grouping.By, delivery.Dimension(by))
		}
		if w.MaxMessages != nil {
			opts.Grouping.Messages = int(*w.MaxMessages)
		}
	}
	d, err := delivery.New(opts)
	if err != nil {
		return nil, problem{v1alpha1.NotificationInvalid, errors.Join(err, to.Close()).Error()}
	}
	return &delivering{d, to, reportedBy(n, c.opts.Name)}, problem{}
}

// versionOf names what of a spec decides which messages a collection makes: not whether it is suspended, nor where they go.
func versionOf(n *v1alpha1.Notification) string {
	spec := n.Spec.DeepCopy()
	spec.Suspend = false
	if spec.Webhook != nil {
		spec.Webhook.URL, spec.Webhook.SecretRef, spec.Webhook.Wait, spec.Webhook.Interval = "", v1alpha1.LocalSecretReference{}, nil, nil
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return strconv.FormatInt(n.Generation, 10)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// sink returns where the messages of a Notification go.
func (c *Controller) sink(n *v1alpha1.Notification, secret *secretData) (sink, error) {
	if w := n.Spec.Webhook; w != nil {
		keys, err := notify.ParseKeys(secret.data[v1alpha1.SigningKey])
		if err != nil {
			return nil, err
		}
		return sinks.NewWebhook(sinks.WebhookOptions{
			URL: w.URL, Keys: keys, CA: secret.data[v1alpha1.CAKey], ClientCert: secret.data[v1alpha1.ClientCertificateKey], ClientKey: secret.data[v1alpha1.ClientPrivateKey], Dial: c.opts.Dial,
		})
	}
	s := n.Spec.NATS
	return sinks.NewNATS(sinks.NATSOptions{
		URLs: s.Servers, Subject: s.Subject, Token: secret.text(v1alpha1.TokenKey), Username: secret.text(v1alpha1.UsernameKey), Password: secret.text(v1alpha1.PasswordKey),
		Creds: secret.data[v1alpha1.CredentialsKey], CA: secret.data[v1alpha1.CAKey], ClientCert: secret.data[v1alpha1.ClientCertificateKey], ClientKey: secret.data[v1alpha1.ClientPrivateKey], Dial: c.opts.Dial,
	})
}

// ofOptions says whether the spec or the Secret is wrong.
func ofOptions(err error) problem {
	var field *sinks.FieldError
	if errors.As(err, &field) && (strings.HasPrefix(field.Field, "url") || strings.HasPrefix(field.Field, "subject")) {
		return problem{v1alpha1.NotificationInvalid, "spec: " + err.Error()}
	}
	return problem{v1alpha1.NotificationSecret, "Secret: " + err.Error()}
}

// alerts makes what sends the alerts of a Notification.
func (c *Controller) alerts(n *v1alpha1.Notification, selects *selection.Selection, secret *secretData) (work, problem) {
	spec := n.Spec.Alertmanager
	by := make([]string, 0, len(spec.GroupBy))
	for _, d := range spec.GroupBy {
		by = append(by, string(d))
	}
	open, err := alerts.New(alerts.Options{Selection: selects, GroupBy: by, IncludeText: n.Spec.IncludeText})
	if err != nil {
		return nil, problem{v1alpha1.NotificationInvalid, "spec.alertmanager: " + err.Error()}
	}
	to, err := sinks.NewAlertmanager(sinks.AlertmanagerOptions{
		URLs: spec.URLs, Token: secret.text(v1alpha1.TokenKey), Username: secret.text(v1alpha1.UsernameKey), Password: secret.text(v1alpha1.PasswordKey),
		CA: secret.data[v1alpha1.CAKey], ClientCert: secret.data[v1alpha1.ClientCertificateKey], ClientKey: secret.data[v1alpha1.ClientPrivateKey], Dial: c.opts.Dial,
	})
	if err != nil {
		return nil, ofOptions(err)
	}
	facts, err := c.opts.Facts()
	if err != nil {
		return nil, problem{v1alpha1.NotificationFailing, errors.Join(err, to.Close()).Error()}
	}
	return &alerting{
		open: open, to: to, every: duration(spec.Interval), origin: c.opts.Origin, state: c.opts.State, facts: facts, leads: c.opts.Leads, alone: c.opts.Others == nil,
		sent: c.metrics.sent.WithLabelValues(n.Name), failed: c.metrics.failed.WithLabelValues(n.Name), log: c.opts.Logger.With("notification", n.Name),
	}, problem{}
}

// labels returns the labels of a member.
func (c *Controller) labels(member string) (map[string]string, bool) {
	state := c.opts.State()
	if state == nil {
		return nil, false
	}
	m, is := state.Snapshot.Member(member)
	if !is {
		return nil, false
	}
	out := make(map[string]string, len(m.Labels))
	for _, l := range m.Labels {
		out[l.Key] = l.Value
	}
	return out, true
}

func rules(n *v1alpha1.Notification) []selection.Rule {
	out := make([]selection.Rule, 0, len(n.Spec.Rules))
	for i := range n.Spec.Rules {
		from := &n.Spec.Rules[i]
		out = append(out, selection.Rule{
			Types: texts(from.Types), Policies: from.Policies, Severities: from.Severities, Members: hub.ToMemberSelector(from.Members),
			Kinds: texts(from.Kinds), Namespaces: texts(from.Namespaces), Transitions: from.Transitions,
		})
	}
	return out
}

func texts[T ~string](from []T) []string {
	var out []string
	for _, t := range from {
		out = append(out, string(t))
	}
	return out
}

func duration(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// reportedBy returns what a status says of what a process has sent; else all since the Notification was made is to be sent.
func reportedBy(n *v1alpha1.Notification, name string) delivery.Reported {
	for i := range n.Status.Processes {
		if p := &n.Status.Processes[i]; p.Name == name && p.ReportedUntil != nil {
			return delivery.Reported{Log: cmp.Or(p.Log, "none"), Until: p.ReportedUntil.Time} // alerts were of no log
		}
	}
	return delivery.Reported{Until: n.CreationTimestamp.Time}
}
