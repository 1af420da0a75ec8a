package externaldocs

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policysource"
	"federator.dev/federator/pkg/policysource/externaldata"
)

// SecretsOf returns the names of the Secrets in federator's namespace that documents of a PolicySource refer to.
func SecretsOf(ps *v1alpha1.PolicySource) (names []string) {
	for _, d := range ps.Spec.External {
		if d.HTTPS != nil && d.HTTPS.SecretRef != nil {
			names = append(names, d.HTTPS.SecretRef.Name)
		}
	}
	return names
}

// ToSource converts the documents that a PolicySource names. secret returns the data of a Secret of federator's namespace, or why
// there is none, and whether that is about to be known.
func ToSource(ps *v1alpha1.PolicySource, secret func(name string) (data map[string][]byte, problem string, pending bool)) externaldata.Source {
	out := externaldata.Source{Name: ps.Name}
	for _, d := range ps.Spec.External {
		doc := externaldata.Document{Key: d.Name, File: d.File, MaxAge: durationOr(d.MaxAge), MaxBytes: externaldata.DefaultMaxBytes}
		if d.MaxBytes != nil {
			doc.MaxBytes = int(*d.MaxBytes)
		}
		if d.Schema != nil {
			doc.Schema = d.Schema.Raw
		}
		if c := d.ConfigMap; c != nil {
			doc.ConfigMap = &externaldata.ConfigMapKey{Name: c.Name, Key: c.Key}
		}
		if h := d.HTTPS; h != nil {
			doc.HTTPS, doc.Interval = &externaldata.HTTPS{URL: h.URL}, durationOr(h.Interval)
			if h.CABundle != "" {
				doc.HTTPS.CA = []byte(h.CABundle)
			}
			if h.SecretRef != nil {
				doc.Problem, doc.Pending = authenticate(doc.HTTPS, h.SecretRef.Name, secret)
			}
		}
		out.Documents = append(out.Documents, doc)
	}
	return out
}

// authenticate adds what a Secret has, or returns what is wrong.
func authenticate(h *externaldata.HTTPS, name string, secret func(string) (map[string][]byte, string, bool)) (problem string, pending bool) {
	data, problem, pending := secret(name)
	if problem != "" {
		return problem, pending
	}
	h.Token = policysource.Secret(strings.TrimRight(string(data[v1alpha1.TokenKey]), "\r\n"))
	if ca := data[v1alpha1.CAKey]; len(h.CA) == 0 {
		h.CA = ca
	}
	if h.Token == "" && len(h.CA) == 0 {
		return fmt.Sprintf("Secret %s has neither %s nor %s", name, v1alpha1.TokenKey, v1alpha1.CAKey), false
	}
	return "", false
}

func durationOr(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// CheckoutOf returns the active commit of a source.
func CheckoutOf(state *policysource.State, source string) externaldata.Checkout {
	p, active := state.Policies[source]
	status, known := state.Status[source]
	if !active {
		return externaldata.Checkout{Pending: !known || status.Phase == policysource.Pending}
	}
	out := externaldata.Checkout{Commit: p.Commit.Hash, Path: p.Commit.Path, Tree: p.Tree, At: p.Since}
	if p.Current && status.Contact.After(out.At) {
		out.At = status.Contact
	}
	return out
}

// Bounds of texts in statuses, as in the CRD.
const maxText = 1024

// readInterval is the minimum time between updates of nothing but lastRead.
const readInterval = time.Minute

// ToStatus converts what is known of documents. old is what the status said before.
func ToStatus(list []externaldata.Status, old []v1alpha1.ExternalDocumentStatus) []v1alpha1.ExternalDocumentStatus {
	out := make([]v1alpha1.ExternalDocumentStatus, 0, len(list))
	for _, s := range list {
		d := v1alpha1.ExternalDocumentStatus{
			Name: clip.Text(s.Key, 63), Known: s.Known, Reason: clip.Text(s.Reason, 63), Message: clip.Text(s.Message, maxText),
			From: clip.Text(s.From, maxText), Digest: s.Digest, Bytes: int64(s.Bytes),
		}
		if !s.At.IsZero() {
			at := metav1.Unix(s.At.Unix(), 0)
			d.LastRead = &at
		}
		for _, was := range old {
			if was.Name == d.Name && was.LastRead != nil && d.LastRead != nil && d.LastRead.Sub(was.LastRead.Time) < readInterval && d.LastRead.After(was.LastRead.Time) {
				d.LastRead = was.LastRead
			}
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Condition returns the condition ExternalData; false if the PolicySource names no documents.
func Condition(list []externaldata.Status) (metav1.Condition, bool) {
	c := metav1.Condition{Type: v1alpha1.ExternalData, Status: metav1.ConditionTrue, Reason: "Current", Message: "all external documents are current"}
	var texts []string
	for _, s := range list {
		switch {
		case s.Known:
			continue
		case s.Reason == "NotRead" && c.Status == metav1.ConditionTrue:
			c.Status, c.Reason = metav1.ConditionUnknown, s.Reason
		case s.Reason != "NotRead" && c.Status != metav1.ConditionFalse:
			c.Status, c.Reason = metav1.ConditionFalse, s.Reason
		}
		text := s.Key + ": " + s.Message
		if s.From != "" {
			text += " (last read: " + s.From + ")"
		}
		texts = append(texts, text)
	}
	if len(texts) > 0 {
		c.Message = "verdicts that read them are Unknown: " + strings.Join(texts, "; ")
	}
	return c, len(list) > 0
}
