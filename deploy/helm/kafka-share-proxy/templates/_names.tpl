{{- define "kafka-share-proxy.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "kafka-share-proxy.fullname" -}}
{{- $name := include "kafka-share-proxy.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kafka-share-proxy.selectorLabels" -}}
app.kubernetes.io/name: {{ include "kafka-share-proxy.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kafka-share-proxy.labels" -}}
{{ include "kafka-share-proxy.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "kafka-share-proxy.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "kafka-share-proxy.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the Service in the cluster's DNS. */}}
{{- define "kafka-share-proxy.serviceHost" -}}
{{- printf "%s.%s.svc.%s" (include "kafka-share-proxy.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{/* Domain of the pods: POD.DOMAIN is the address of one proxy of a fleet. */}}
{{- define "kafka-share-proxy.podsDomain" -}}
{{- printf "%s-pods.%s.svc.%s" (include "kafka-share-proxy.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "kafka-share-proxy.peerSecretName" -}}
{{- default (printf "%s-peer" (include "kafka-share-proxy.fullname" .)) .Values.fleet.existingSecret -}}
{{- end -}}

{{- define "kafka-share-proxy.tlsSecretName" -}}
{{- if .Values.tls.secretName -}}
{{- .Values.tls.secretName -}}
{{- else if .Values.tls.certificate.enabled -}}
{{- printf "%s-tls" (include "kafka-share-proxy.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "kafka-share-proxy.peerTlsSecretName" -}}
{{- if eq .Values.mode "fleet" -}}
{{- if .Values.fleet.tls.secretName -}}
{{- .Values.fleet.tls.secretName -}}
{{- else if .Values.fleet.tls.certificate.enabled -}}
{{- printf "%s-peer-tls" (include "kafka-share-proxy.fullname" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Name in the certificates of all proxies of a fleet. */}}
{{- define "kafka-share-proxy.peerServerName" -}}
{{- printf "peers.%s" (include "kafka-share-proxy.podsDomain" .) -}}
{{- end -}}
