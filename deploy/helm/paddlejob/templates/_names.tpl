{{- define "paddlejob.prefix" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- /* Whether pods report to the operator; not empty if so. */ -}}
{{- define "paddlejob.reports" -}}
{{- if and .Values.operator.reports (not .Values.watchNamespace) }}yes{{ end -}}
{{- end }}

{{- define "paddlejob.serviceAccount" -}}
{{- default (printf "%s-manager-sa" (include "paddlejob.prefix" .)) .Values.serviceAccount.name -}}
{{- end }}

{{- define "paddlejob.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end }}

{{- /* What selects the pods: it can never be changed, so nothing that differs between versions is in it. */ -}}
{{- define "paddlejob.selector" -}}
control-plane: controller-manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "paddlejob.labels" -}}
app.kubernetes.io/name: paddlejob
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* A role and its binding to the operator. Takes: root, name, namespace (empty for the cluster), rules. */ -}}
{{- define "paddlejob.granted" -}}
{{- $scope := ternary "Cluster" "" (empty .namespace) -}}
{{- $name := printf "%s-%s" (include "paddlejob.prefix" .root) .name -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}Role
metadata:
  name: {{ $name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "paddlejob.labels" .root | nindent 4 }}
rules:
  {{- include .rules .root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $scope }}RoleBinding
metadata:
  name: {{ $name }}binding
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "paddlejob.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $scope }}Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "paddlejob.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
