# `. deploy/settings.sh`, beside afa.env: sets what stands there, as it stands. `. afa.env` would have the
# shell read it, for which `&`, `;` and `$` in an address or a password have a meaning.
while IFS= read -r line || [ -n "$line" ]; do
  case $line in
    [A-Za-z_]*=*) export "$line" ;;
  esac
done < afa.env
unset line
