package queryapi

import (
	"fmt"
	"log/slog"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	auditlog "k8s.io/apiserver/plugin/pkg/audit/log"
)

// auditLog is the audit log; its fields are nil without one.
type auditLog struct {
	rules audit.PolicyRuleEvaluator
	sink  audit.Backend
	file  *rotatingFile
}

func newAuditLog(a Audit, log *slog.Logger) (auditLog, error) {
	if a.PolicyFile == "" {
		return auditLog{}, nil
	}
	rules, err := policy.LoadPolicyFromFile(a.PolicyFile)
	if err != nil {
		return auditLog{}, fmt.Errorf("query API: audit policy: %w", err)
	}
	file, err := openRotatingFile(a, log)
	if err != nil {
		return auditLog{}, fmt.Errorf("query API: audit log: %w", err)
	}
	return auditLog{
		rules: policy.NewPolicyRuleEvaluator(rules), file: file,
		sink: auditlog.NewBackend(file, auditlog.FormatJson, auditv1.SchemeGroupVersion),
	}, nil
}

func (t auditLog) close() error {
	if t.file == nil {
		return nil
	}
	t.sink.Shutdown()
	if err := t.file.Close(); err != nil {
		return fmt.Errorf("query API: audit log: %w", err)
	}
	return nil
}
