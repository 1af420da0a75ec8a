package queryapi

import (
	"fmt"
	"log/slog"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// trail is the audit log; its parts are nil without one.
type trail struct {
	rules audit.PolicyRuleEvaluator
	sink  audit.Backend
	file  *rotated
}

func newTrail(a Audit, log *slog.Logger) (trail, error) {
	if a.PolicyFile == "" {
		return trail{}, nil
	}
	rules, err := policy.LoadPolicyFromFile(a.PolicyFile)
	if err != nil {
		return trail{}, fmt.Errorf("query API: audit policy: %w", err)
	}
	file, err := openRotated(a, log)
	if err != nil {
		return trail{}, fmt.Errorf("query API: audit log: %w", err)
	}
	return trail{
		rules: policy.NewPolicyRuleEvaluator(rules), file: file,
		sink: auditlog.NewBackend(file, auditlog.FormatJson, auditv1.SchemeGroupVersion),
	}, nil
}

func (t trail) close() error {
	if t.file == nil {
		return nil
	}
	t.sink.Shutdown()
	if err := t.file.Close(); err != nil {
		return fmt.Errorf("query API: audit log: %w", err)
	}
	return nil
}
