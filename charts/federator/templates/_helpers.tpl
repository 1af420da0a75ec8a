{{- define "federator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "federator.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "federator.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "federator.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "federator.selector" -}}
app.kubernetes.io/name: {{ include "federator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "federator.labels" -}}
{{ include "federator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "federator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "federator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is required with serviceAccount.create=false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "federator.image" -}}
{{- $repository := required "image.repository is required: the chart assumes no registry" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "federator.tlsSecret" -}}
{{- default (printf "%s-tls" (include "federator.fullname" .)) .Values.query.tls.secretName -}}
{{- end -}}

{{/* DNS names of the query API's Service. */}}
{{- define "federator.hosts" -}}
{{- $name := include "federator.fullname" . -}}
{{- $ns := .Release.Namespace -}}
{{- concat (list $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns) "localhost") .Values.query.tls.hosts | uniq | toJson -}}
{{- end -}}

{{/* Sources of members, as the configuration file has them. */}}
{{- define "federator.sources" -}}
{{- if and .Values.clusters.allNamespaces .Values.clusters.namespaces -}}
{{- fail "clusters.namespaces and clusters.allNamespaces are mutually exclusive" -}}
{{- end -}}
{{- $sources := dict -}}
{{- if or .Values.clusters.allNamespaces .Values.clusters.namespaces }}{{ $_ := set $sources "clusterAPI" (dict "namespaces" (default list .Values.clusters.namespaces)) }}{{ end -}}
{{- with .Values.sources -}}
{{- if .members.namespaces }}{{ $_ := set $sources "members" (dict "namespaces" .members.namespaces) }}{{ end -}}
{{- if .argoCD.namespaces }}{{ $_ := set $sources "argoCD" (dict "namespaces" .argoCD.namespaces) }}{{ end -}}
{{- if .managedClusters.proxyURL -}}
{{- $_ := required "sources.managedClusters.caSecretName is required" .managedClusters.caSecretName -}}
{{- $_ := set $sources "managedClusters" (dict "proxyURL" .managedClusters.proxyURL "caFile" "/etc/federator/cluster-proxy/ca.crt" "serviceAccount" .managedClusters.serviceAccount) -}}
{{- end -}}
{{- if .clusterProfiles.namespaces -}}
{{- if not .clusterProfiles.providers }}{{ fail "sources.clusterProfiles.providers is required" }}{{ end -}}
{{- $_ := set $sources "clusterProfiles" (dict "namespaces" .clusterProfiles.namespaces "providersFile" "/etc/federator/providers.json" "profileEnv" .clusterProfiles.profileEnv) -}}
{{- end -}}
{{- end -}}
{{- if not $sources -}}
{{- fail "clusters.namespaces is required, or clusters.allNamespaces=true, which grants read access to every Secret on the hub, or one of sources that is on the hub" -}}
{{- end -}}
{{- $federators := list -}}
{{- range .Values.sources.federators -}}
{{- $dir := printf "/etc/federator/federators/%s" .name -}}
{{- $federators = append $federators (dict "name" .name "server" .server "caFile" (printf "%s/ca.crt" $dir) "tokenFile" (printf "%s/token" $dir)) -}}
{{- end -}}
{{- if $federators }}{{ $_ := set $sources "federators" $federators }}{{ end -}}
{{- toYaml $sources -}}
{{- end -}}

{{/* The configuration file: .Values.config, overridden by the settings that other values control. */}}
{{- define "federator.config" -}}
{{- $dirs := list -}}
{{- if .Values.policies.files }}{{ $dirs = append $dirs "/etc/federator/policies" }}{{ end -}}
{{- $policies := dict "library" .Values.policies.library "dirs" $dirs "namespace" .Release.Namespace -}}
{{- if .Values.policies.hub }}
{{- if .Values.policies.bindings }}{{ fail "policies.bindings requires policies.hub=false: FleetPolicies are the bindings otherwise" }}{{ end -}}
{{- $namespaces := list -}}
{{- range .Values.policySources.secrets }}{{ $namespaces = append $namespaces .namespace }}{{ end -}}
{{- $_ := set $policies "hub" true -}}
{{- if $namespaces }}{{ $_ := set $policies "secretNamespaces" ($namespaces | uniq | sortAlpha) }}{{ end -}}
{{- if .Values.policySources.webhook.enabled }}{{ $_ := set $policies "webhook" (dict "listen" ":9292" "secretFile" "/etc/federator/webhook/secret") }}{{ end -}}
{{- if .Values.policies.reports }}{{ $_ := set $policies "reports" true }}{{ end -}}
{{- if .Values.notify.receivers }}{{ $_ := set $policies "notify" (include "federator.notify" . | fromYaml) }}{{ end -}}
{{- else if .Values.notify.receivers }}{{ fail "notify.receivers requires policies.hub=true" }}
{{- else if .Values.policySources.webhook.enabled }}{{ fail "policySources.webhook requires policies.hub=true" }}
{{- else if .Values.policies.reports }}{{ fail "policies.reports requires policies.hub=true" }}
{{- end -}}
{{- if .Values.policies.bindings }}{{ $_ := set $policies "bindings" "/etc/federator/bindings.yaml" }}{{ end -}}
{{- $ours := dict
  "sources" (include "federator.sources" . | fromYaml)
  "policies" $policies
  "listen" (dict "serve" ":8080" "tls" (dict "certFile" "/etc/federator/tls/tls.crt" "keyFile" "/etc/federator/tls/tls.key"))
  "query" (dict "listen" ":8443" "tls" (dict "certFile" "/etc/federator/tls/tls.crt" "keyFile" "/etc/federator/tls/tls.key"))
-}}
{{- if .Values.query.mcp }}{{ $_ := set (get $ours "query") "mcp" true }}{{ end -}}
{{- if .Values.persistence.enabled }}
{{- $kept := dict "directory" "/var/lib/federator" -}}
{{- if .Values.persistence.keySecretName }}{{ $_ := set $kept "keyFile" "/etc/federator/key/key" }}{{ end -}}
{{- $_ := set $kept "maxBytes" (include "federator.maxBytes" . | int64) -}}
{{- $_ := set $ours "persistence" $kept -}}
{{- $_ := set $ours "history" (dict "maxBytes" (include "federator.historyBytes" . | int64)) -}}
{{- else -}}
{{- $_ := set $ours "persistence" (dict "off" true) -}}
{{- end -}}
{{- if .Values.shards.enabled }}{{ $_ := set $ours "shards" (include "federator.shards" . | fromYaml) }}{{ end -}}
{{- if .Values.agents.enabled }}{{ $_ := set $ours "agents" (include "federator.agents" . | fromYaml) }}{{ end -}}
{{- $_ := set $ours "ui" (include "federator.ui" . | fromYaml) -}}
{{- if .Values.metrics.perScope }}{{ $_ := set $ours "metrics" (dict "perScope" true) }}{{ end -}}
{{- if .Values.traces.endpoint }}{{ $_ := set $ours "traces" (include "federator.traces" . | fromYaml) }}{{ end -}}
{{- mergeOverwrite (deepCopy .Values.config) $ours | toYaml -}}
{{- end -}}

{{/* Bytes of the volume. */}}
{{- define "federator.volumeBytes" -}}
{{- $size := .Values.persistence.size -}}
{{- $unit := regexFind "[KMGT]i$" $size -}}
{{- $power := index (dict "" 0 "Ki" 1 "Mi" 2 "Gi" 3 "Ti" 4) $unit | int -}}
{{- $bytes := trimSuffix $unit $size | float64 -}}
{{- range until $power }}{{ $bytes = mulf $bytes 1024 }}{{ end -}}
{{- int64 $bytes -}}
{{- end -}}

{{/* Bytes of it that the history may have: as configured, or 15 %. */}}
{{- define "federator.historyBytes" -}}
{{- $bytes := include "federator.volumeBytes" . | int64 -}}
{{- $configured := default dict .Values.config.history -}}
{{- if hasKey $configured "maxBytes" -}}
{{- $max := int64 $configured.maxBytes -}}
{{- if and (not $configured.off) (gt (add $max (include "federator.maxBytes" . | int64)) $bytes) }}{{ fail (printf "config.history.maxBytes is %d: with persistence.maxBytes more than persistence.size, which is %s" $max .Values.persistence.size) }}{{ end -}}
{{- $max -}}
{{- else -}}
{{- max 1048576 (mulf $bytes 0.15 | int64) -}}
{{- end -}}
{{- end -}}

{{/* Bytes that the index may have on the volume: as configured, or 70 % of its size. What is above its size fills a claim, and evicts a Pod with an emptyDir. */}}
{{- define "federator.maxBytes" -}}
{{- $size := .Values.persistence.size -}}
{{- $bytes := include "federator.volumeBytes" . | int64 -}}
{{- $configured := default dict .Values.config.persistence -}}
{{- if hasKey $configured "maxBytes" -}}
{{- $max := int64 $configured.maxBytes -}}
{{- if gt $max $bytes }}{{ fail (printf "config.persistence.maxBytes is %d, more than persistence.size, which is %s" $max $size) }}{{ end -}}
{{- $max -}}
{{- else -}}
{{- mulf $bytes 0.7 | int64 -}}
{{- end -}}
{{- end -}}

{{/* What the index is kept on: pvc or emptyDir. The claims of a StatefulSet that is there cannot be changed. */}}
{{- define "federator.volume" -}}
{{- $type := .Values.persistence.type -}}
{{- if eq $type "auto" -}}
{{- $there := lookup "apps/v1" "StatefulSet" .Release.Namespace (include "federator.fullname" .) -}}
{{- if $there -}}
{{- $type = ternary "pvc" "emptyDir" (not (empty (dig "spec" "volumeClaimTemplates" list $there))) -}}
{{- else if .Values.persistence.storageClass -}}
{{- $type = "pvc" -}}
{{- else -}}
{{- $type = "emptyDir" -}}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items -}}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) "true" }}{{ $type = "pvc" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $type -}}
{{- end -}}

{{/* The Secret with the key of sessions of the web UI. */}}
{{- define "federator.uiSessionSecret" -}}
{{- default (printf "%s-ui-session" (include "federator.fullname" .)) .Values.ui.sessionKeySecretName -}}
{{- end -}}

{{- define "federator.ui" -}}
{{- $ui := dict "enabled" .Values.ui.enabled -}}
{{- if .Values.ui.enabled }}{{ $_ := set $ui "sessionKeyFile" "/etc/federator/ui/session/key" }}{{ end -}}
{{- with .Values.ui.oidc -}}
{{- if and $.Values.ui.enabled .issuer -}}
{{- $oidc := dict "issuer" .issuer "clientID" (required "ui.oidc.clientID is required with ui.oidc.issuer" .clientID) "scopes" .scopes -}}
{{- if .clientSecretName }}{{ $_ := set $oidc "clientSecretFile" "/etc/federator/ui/client/clientSecret" }}{{ end -}}
{{- if .caSecretName }}{{ $_ := set $oidc "caFile" "/etc/federator/ui/issuer/ca.crt" }}{{ end -}}
{{- if .redirectURL }}{{ $_ := set $oidc "redirectURL" .redirectURL }}{{ end -}}
{{- $_ := set $ui "oidc" $oidc -}}
{{- end -}}
{{- end -}}
{{- toYaml $ui -}}
{{- end -}}

{{/* How the replicas share the fleet. */}}
{{- define "federator.shards" -}}
{{- if lt (int .Values.replicas) 2 }}{{ fail "shards.enabled requires replicas of at least 2" }}{{ end -}}
{{- dict "count" .Values.replicas "replication" .Values.shards.replication "listen" ":9444" | toYaml -}}
{{- end -}}

{{/* Where the agents of Members connect. */}}
{{- define "federator.agents" -}}
{{- if not .Values.sources.members.namespaces }}{{ fail "agents.enabled requires sources.members.namespaces: agents are of Members" }}{{ end -}}
{{- if not .Values.agents.hosts }}{{ fail "agents.hosts is required: the names that agents reach the replicas by" }}{{ end -}}
{{- dict "listen" ":9443" "hosts" .Values.agents.hosts "certificateLife" .Values.agents.certificateLife | toYaml -}}
{{- end -}}

{{- define "federator.notify" -}}
{{- $receivers := list -}}
{{- range .Values.notify.receivers }}
{{- $dir := printf "/etc/federator/notify/%s" .name -}}
{{- $receiver := dict "name" .name "url" .url "keyFile" (printf "%s/key" $dir) -}}
{{- if .ca }}{{ $_ := set $receiver "caFile" (printf "%s/ca.crt" $dir) }}{{ end -}}
{{- $receivers = append $receivers $receiver -}}
{{- end -}}
{{- dict "origin" .Values.notify.origin "receivers" $receivers | toYaml -}}
{{- end -}}

{{- define "federator.traces" -}}
{{- $traces := dict "endpoint" .Values.traces.endpoint "insecure" .Values.traces.insecure -}}
{{- if and .Values.traces.insecure (or .Values.traces.ca .Values.traces.headers) }}{{ fail "traces.insecure excludes traces.ca and traces.headers" }}{{ end -}}
{{- if and (or .Values.traces.ca .Values.traces.headers) (not .Values.traces.secretName) }}{{ fail "traces.secretName is required with traces.ca and traces.headers" }}{{ end -}}
{{- if .Values.traces.ca }}{{ $_ := set $traces "caFile" "/etc/federator/traces/ca.crt" }}{{ end -}}
{{- if .Values.traces.headers }}{{ $_ := set $traces "headersFile" "/etc/federator/traces/headers" }}{{ end -}}
{{- toYaml $traces -}}
{{- end -}}

{{- define "federator.bindings" -}}
{{- dict "bindings" .Values.policies.bindings | toYaml -}}
{{- end -}}
