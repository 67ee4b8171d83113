{{/* The watchdog's account. Bindings and the fence name it. */}}
{{- define "cilium-leak-healer.account" -}}
{{ .Values.serviceAccount.name }}
{{- end }}

{{/* Labels and annotations of an object. */}}
{{- define "cilium-leak-healer.meta" -}}
labels:
  {{- include "cilium-leak-healer.labels" . | nindent 2 }}
{{- with .Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "cilium-leak-healer.labels" -}}
{{- /* The chart's own win: selectors and `doctor` go by them. */ -}}
{{- toYaml (merge (dict
  "app.kubernetes.io/name" "cilium-leak-healer"
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" .Chart.AppVersion
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_"))
  ) .Values.labels) }}
{{- end }}

{{- define "cilium-leak-healer.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What the mode and the remedies ask for: "true" or nothing. */}}
{{- define "cilium-leak-healer.heals" -}}
{{- if eq .Values.mode "heal" }}true{{ end }}
{{- end }}

{{- define "cilium-leak-healer.movesPods" -}}
{{- if and (eq .Values.mode "heal") (has "delete-pod" .Values.remedies) }}true{{ end }}
{{- end }}

{{- define "cilium-leak-healer.restarts" -}}
{{- if and (eq .Values.mode "heal") (has "restart-agent" .Values.remedies) }}true{{ end }}
{{- end }}

{{- define "cilium-leak-healer.deletes" -}}
{{- if or (include "cilium-leak-healer.movesPods" .) (include "cilium-leak-healer.restarts" .) }}true{{ end }}
{{- end }}

{{- define "cilium-leak-healer.fenced" -}}
{{- if and .Values.fence.create (include "cilium-leak-healer.deletes" .) }}
{{- if semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version }}
{{- fail (printf "fence.create: Kubernetes %s has no ValidatingAdmissionPolicy, which came with 1.30: set remedies to [disconnect-endpoint], which deletes nothing" .Capabilities.KubeVersion.Version) }}
{{- end }}true{{ end }}
{{- end }}

{{/* The Leases for pods in deletion: as many as may be at one time. */}}
{{- define "cilium-leak-healer.deleteSlots" -}}
{{ .Values.budgets.delete.inFlight | default 3 | int }}
{{- end }}

{{- define "cilium-leak-healer.deleteLeases" -}}
{{- $names := list }}
{{- range $slot := until (int (include "cilium-leak-healer.deleteSlots" .)) }}
{{- $names = append $names (printf "cilium-leak-healer-delete-pod-%d" $slot) }}
{{- end }}
{{- /* YAML of one line. */ -}}
[{{ join ", " $names }}]
{{- end }}

{{/* Key and value of the agent's label, for CEL. */}}
{{- define "cilium-leak-healer.agentLabelKey" -}}
{{ (splitn "=" 2 .Values.agent.podSelector)._0 }}
{{- end }}

{{- define "cilium-leak-healer.agentLabelValue" -}}
{{ (splitn "=" 2 .Values.agent.podSelector)._1 }}
{{- end }}

{{- define "cilium-leak-healer.port" -}}
{{ regexFind "[0-9]+$" (first .Values.listen) }}
{{- end }}

{{/* Where the kubelet finds the first address: by loopback, if it is there. */}}
{{- define "cilium-leak-healer.probeHost" -}}
{{- $host := regexReplaceAll ":[0-9]+$" (first .Values.listen) "" | trimAll "[]" }}
{{- if eq $host "0.0.0.0" }}127.0.0.1{{ else if eq $host "::" }}::1{{ else }}{{ $host }}{{ end }}
{{- end }}

{{/* Nobody beyond the node reaches a loopback address. */}}
{{- define "cilium-leak-healer.reached" -}}
{{- $open := false }}
{{- range .root.Values.listen }}
{{- if not (regexMatch "^(127\\.|\\[::1\\])" .) }}{{ $open = true }}{{ end }}
{{- end }}
{{- if not $open }}
{{- fail (printf "%s.enabled: Prometheus does not reach %s: set listen, for example to [0.0.0.0:9969]" .what (join "," .root.Values.listen)) }}
{{- end }}
{{- end }}

{{/* The flags that differ from the program's own defaults. A null is left to the program. */}}
{{- define "cilium-leak-healer.flags" -}}
{{- $v := .Values }}
{{- $flags := list
  (list "MODE" $v.mode)
  (list "HEAL_FOR" $v.healFor)
  (list "REMEDIES" (join "," $v.remedies | eq "disconnect-endpoint,delete-pod" | ternary nil (join "," $v.remedies)))
  (list "REQUIRE_FENCE" (ternary nil "false" $v.fence.required))
  (list "ALLOW_UNKNOWN_CILIUM" (ternary "true" nil $v.allowUnknownCilium))
  (list "NAMESPACE_ALLOW" (join "," $v.namespaceAllow))
  (list "NAMESPACE_DENY" (join "," $v.namespaceDeny))
  (list "DISCONNECT_BURST" $v.budgets.disconnect.burst)
  (list "DISCONNECT_REFILL" $v.budgets.disconnect.refill)
  (list "DELETE_BURST" $v.budgets.delete.burst)
  (list "DELETE_REFILL" $v.budgets.delete.refill)
  (list "DELETE_IN_FLIGHT" $v.budgets.delete.inFlight)
  (list "RESTART_REFILL" $v.budgets.restart.refill)
  (list "BREAKER_FLOOR" $v.breaker.floor)
  (list "BREAKER_SHARE" $v.breaker.share)
  (list "BREAKER_COOL_DOWN" $v.breaker.coolDown)
  (list "AGENT_NAMESPACE" ($v.agent.namespace | eq "kube-system" | ternary nil $v.agent.namespace))
  (list "AGENT_POD_SELECTOR" ($v.agent.podSelector | eq "k8s-app=cilium" | ternary nil $v.agent.podSelector))
  (list "AGENT_CONTAINER" $v.agent.container)
  (list "AGENT_SOCKET_DIR" ($v.agent.socketDir | eq "/var/run/cilium" | ternary nil $v.agent.socketDir))
  (list "AGENT_TIMEOUT" $v.agent.timeout)
  (list "STARTUP_QUIET" $v.pace.startupQuiet)
  (list "CONFIRM_GAP" $v.pace.confirmGap)
  (list "EVENT_DELAY" $v.pace.eventDelay)
  (list "VERIFY_TIMEOUT" $v.pace.verifyTimeout)
  (list "RESTART_TIMEOUT" $v.pace.restartTimeout)
  (list "RESTART_QUIET" $v.pace.restartQuiet)
  (list "SHUTDOWN_TIMEOUT" $v.pace.shutdownTimeout)
  (list "AGENT_SETTLE" $v.limits.agentSettle)
  (list "HOLDER_SETTLE" $v.limits.holderSettle)
  (list "LONE_FAILURE_AGE" $v.limits.loneFailureAge)
  (list "FAILURE_MAX_AGE" $v.limits.failureMaxAge)
  (list "FAILURE_MAX_SKEW" $v.limits.failureMaxSkew)
  (list "OLDER_MARGIN" $v.limits.olderMargin)
  (list "START_MARGIN" $v.limits.startMargin)
  (list "STATE_DIR" ($v.stateDir | eq "/var/run/cilium-leak-healer" | ternary nil $v.stateDir))
  (list "API_TIMEOUT" $v.apiTimeout)
  (list "LOG_FORMAT" $v.log.format)
  (list "LOG_LEVEL" $v.log.level)
  (list "LISTEN" (join "," $v.listen))
  (list "AUTH" $v.auth)
  (list "STREAM_CLIENTS" $v.streamClients)
}}
{{- range $flags }}
{{- $value := last . }}
{{- if kindIs "float64" $value }}{{ $value = int64 $value }}{{ end }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}
- name: CILIUM_LEAK_HEALER_{{ first . }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end }}
{{- end }}
